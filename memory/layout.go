package memory

import (
	"errors"
	"fmt"
)

// Layout says where the buffers of a step lie, before the step begins. The program of a
// rank is cut into places, one for an action; repeats of an action share a place. What
// is allocated at a place, in order, are its births.
type Layout struct {
	Height      int64        // bytes of the step's part of the arena
	Allocations []Allocation // of place after place
	Places      []int32      // Allocations[Places[p]:Places[p+1]] are allocated at place p
	Levels      []Level      // by place
}

// Allocation is one allocation of a layout.
type Allocation struct {
	Offset int64 // in the step's part of the arena, bytes
	Bytes  int64 // that will be asked for
	Class  Class
	AtMost bool // fewer bytes may be asked for: Bytes is the most that it can be
}

// Level is how much of a step is live at a place, in bytes as they are asked for.
type Level struct {
	Live int64 // after the place
	Peak int64 // the most within the place
}

// Planned is an optional ability of a Space: to place the buffers of a step where a
// layout says.
type Planned interface {
	// Lay makes room for the steps of a layout, pages included, and places what is
	// allocated from now on as the layout says, until Lay(nil). It is ErrOutOfMemory where
	// there is no room, and ErrLive, with the owners, where something of an earlier step is
	// live. The layout is borrowed until the next Lay, and is not changed after its first.
	Lay(layout *Layout) error
	// At says at which place of the layout the program is: what is allocated next is the
	// first birth of that place. A place that the layout lacks has no births.
	At(place int)
}

// Unordered is an optional ability of a Planned space: to take allocations in another order
// than that of the layout, as a source makes the parts of an entry.
type Unordered[T any] interface {
	// AnyOrder says that the next n allocations of the place may come in any order, until
	// Settle. All of them may be live at once.
	AnyOrder(n int)
	// Settle says which they were: handles[i] is the i-th of the layout, or none. What lies in
	// the place of another one is moved, with its contents; views of it end.
	Settle(handles []T) error
}

// Errors of planned memory.
var (
	// ErrLayout is returned for a layout that no step can have.
	ErrLayout = errors.New("memory: the layout is not possible")
	// ErrLive is returned where a step is to begin, or pages are to go back to the system,
	// and buffers of a step are live.
	ErrLive = errors.New("memory: something of a step is live")
	// ErrUnplanned is returned by Alloc for a buffer that the layout does not have at this
	// place. A [PlanError] says what it has.
	ErrUnplanned = errors.New("memory: the allocation is not in the plan")
	// ErrOverlap is returned by Alloc where the layout has a live buffer's bytes for a new
	// one. A [PlanError] names the owner.
	ErrOverlap = errors.New("memory: the place of the buffer is not free")
)

// PlanError is an allocation that the layout refused.
type PlanError struct {
	Err     error      // ErrUnplanned or ErrOverlap
	Place   int        // of the layout
	Number  int        // of the allocation at the place, from 0
	Class   Class      // that was asked for
	Bytes   int64      // that were asked for
	Planned Allocation // the zero Allocation where the place has no further one
	Owner   Info       // the live buffer that is in the way (ErrOverlap)
}

// Error says what was asked for, what was planned, and who is in the way.
func (e *PlanError) Error() string {
	text := fmt.Sprintf("%v: %d bytes (%s) asked for as allocation %d of place %d", e.Err, e.Bytes, e.Class, e.Number, e.Place)
	b := &e.Planned
	switch {
	case e.Err == ErrOverlap:
		return text + fmt.Sprintf("; its offset %d is taken: %d bytes (%s), allocation %d since the arena was made, were not released", b.Offset, e.Owner.Bytes, e.Owner.Class, e.Owner.Serial)
	case *b == Allocation{}:
		return text + "; nothing more is planned there: record the stage again, its profile is not what it does"
	case b.AtMost:
		return text + fmt.Sprintf("; planned are at most %d bytes (%s)", b.Bytes, b.Class)
	}
	return text + fmt.Sprintf("; planned are %d bytes (%s)", b.Bytes, b.Class)
}

// Unwrap returns Err.
func (e *PlanError) Unwrap() error { return e.Err }

// Validate reports the first fault of a layout: a birth that is not within the height,
// is of no class or of a Lasting one, or places that do not cut the births into parts.
// Whether buffers overlap in time is not looked at.
func (l *Layout) Validate() error {
	if l.Height < 0 || l.Height > maxCapacity {
		return fmt.Errorf("%w: its height is %d bytes", ErrLayout, l.Height)
	}
	for i := range l.Allocations {
		b := &l.Allocations[i]
		if b.Bytes <= 0 || b.Offset < 0 || b.Offset > l.Height-b.Bytes {
			return fmt.Errorf("%w: birth %d has %d bytes at offset %d, the height is %d", ErrLayout, i, b.Bytes, b.Offset, l.Height)
		}
		if b.Offset%layoutAlign != 0 {
			return fmt.Errorf("%w: birth %d is at offset %d, want a multiple of %d", ErrLayout, i, b.Offset, layoutAlign)
		}
		if b.Class.Lasting() || int(b.Class) >= NumClasses {
			return fmt.Errorf("%w: birth %d is of class %s, which is not a step's", ErrLayout, i, b.Class)
		}
	}
	if n := len(l.Places); n != len(l.Levels)+1 {
		return fmt.Errorf("%w: it has %d bounds of places and %d levels, want one bound more than levels", ErrLayout, n, len(l.Levels))
	}
	last := int32(0)
	for p, bound := range l.Places {
		if bound < last || p == 0 && bound != 0 {
			return fmt.Errorf("%w: bound %d of its places is %d, after %d", ErrLayout, p, bound, last)
		}
		last = bound
	}
	if int(last) != len(l.Allocations) {
		return fmt.Errorf("%w: its places have %d allocations, of %d", ErrLayout, last, len(l.Allocations))
	}
	return nil
}

// layoutAlign is the least alignment of an offset, that of a 4-byte element.
const layoutAlign = 4
