package memory

import (
	"errors"
	"fmt"
)

// Layout gives the offsets of a step's buffers before the step begins. A rank's program is divided into
// places, one for each action; repeats of an action may share a place (see [SegmentPlaces]). The last place
// is the end of the step. The allocations at a place, in order, are its births.
type Layout struct {
	Height      int64           // size of the step's part of the arena, in bytes
	Allocations []Allocation    // ordered by place
	Places      []int32         // Allocations[Places[p]:Places[p+1]] are allocated at place p
	Levels      []Level         // by place
	Segments    []SegmentPlaces // by segment of the program
}

// StepEnd returns the last place, which is the end of the step.
func (l *Layout) StepEnd() int { return len(l.Levels) - 1 }

// Allocation is one allocation of a layout.
type Allocation struct {
	Offset int64 // in the step's part of the arena, in bytes
	Bytes  int64 // requested size
	Class  Class
	AtMost bool // Bytes is an upper bound: fewer bytes may be requested
}

// Level is the live memory of a step at a place, in requested bytes.
type Level struct {
	Live int64 // at the end of the place
	Peak int64 // maximum within the place
}

// SegmentPlaces maps the repeats of a segment of the program to places. Each of the first Lead repeats
// and of the last Tail repeats has its own places. The repeats between them share the places of Cycle
// repeats: a repeat has the same places as the repeat that is Cycle repeats earlier.
type SegmentPlaces struct {
	First  int // place of the first action of the first repeat
	Body   int // number of actions in a repeat
	Repeat int
	Lead   int
	Cycle  int
	Tail   int
}

// Base returns the place of the first action of a repeat. The places of its other actions follow.
func (s *SegmentPlaces) Base(repeat int) int {
	phase := repeat // index among the repeats that have places of their own
	switch tail := s.Repeat - s.Tail; {
	case repeat >= tail:
		phase = s.Lead + s.Cycle + repeat - tail
	case repeat >= s.Lead:
		phase = s.Lead + (repeat-s.Lead)%s.Cycle
	}
	return s.First + phase*s.Body
}

// Planned is an optional interface of a Space: it places the buffers of a step according to a
// layout.
type Planned interface {
	// SetLayout prepares the memory for the steps of a layout, including its pages, and places
	// subsequent allocations according to the layout, until SetLayout(nil). It returns ErrLayout for an
	// invalid layout, ErrOutOfMemory if there is not enough memory, and ErrLive, with the owners, if a
	// buffer of an earlier step is live. The layout is borrowed until the next SetLayout, and must not be
	// changed after its first use.
	SetLayout(layout *Layout) error
	// SetPlace sets the current place of the program: the next allocation is the first birth of that
	// place. A place outside the layout has no births.
	SetPlace(place int)
}

// Bounded is an optional interface of a Planned space whose buffers may be smaller than planned: with it,
// the live bytes of a step can be compared exactly with a layout of upper bounds.
type Bounded interface {
	// Unrequested returns the bytes that the layout plans for live buffers, and that they did not
	// request.
	Unrequested() int64
}

// Reorderer is an optional interface of a Planned space: it accepts allocations in an order
// that differs from the layout, for instance when a source creates the parts of an entry.
type Reorderer[T any] interface {
	// AllowReorder allows the next n allocations of the place in any order, until ResolveOrder. All of
	// them may be live at once.
	AllowReorder(n int)
	// ResolveOrder assigns the buffers allocated since AllowReorder to the layout's allocations: handles[i]
	// is the buffer of the i-th of these allocations, or the zero handle. A buffer that occupies another
	// one's place is moved, with its contents, and views of it become invalid.
	ResolveOrder(handles []T) error
}

// Errors of planned memory.
var (
	// ErrLayout is returned for an invalid layout.
	ErrLayout = errors.New("memory: invalid layout")
	// ErrLive is returned by SetLayout and ReleasePages if buffers of a step are live, and by
	// ReleasePages also during a step with a layout.
	ErrLive = errors.New("memory: a buffer of a step is live")
	// ErrUnplanned is returned by Alloc and ResolveOrder for a buffer that the layout does not contain at
	// this place. It is wrapped by a [PlanError].
	ErrUnplanned = errors.New("memory: the allocation is not in the plan")
	// ErrOverlap is returned by Alloc if a live buffer overlaps the place of a new one. It is wrapped by
	// a [PlanError] that describes the owner.
	ErrOverlap = errors.New("memory: the place of the buffer is not free")
)

// PlanError describes an allocation that does not follow the layout.
type PlanError struct {
	Err     error      // ErrUnplanned or ErrOverlap
	Place   int        // of the layout
	Number  int        // index of the allocation at the place, from 0
	Class   Class      // requested
	Bytes   int64      // requested
	Planned Allocation // zero if the place has no more allocations
	Owner   Info       // the live buffer that overlaps (ErrOverlap)
}

// Error describes the request, the plan, and the overlapping buffer.
func (e *PlanError) Error() string {
	text := fmt.Sprintf("%v: %d bytes (%s) requested as allocation %d of place %d", e.Err, e.Bytes, e.Class, e.Number, e.Place)
	b := &e.Planned
	switch {
	case e.Err == ErrOverlap:
		return text + fmt.Sprintf("; its offset %d is taken: %d bytes (%s), allocation %d since the arena was made, were not released", b.Offset, e.Owner.Bytes, e.Owner.Class, e.Owner.Serial)
	case *b == Allocation{}:
		return text + "; nothing more is planned there: make an allocation that depends on values in every microbatch, with Microbatch.AtMost for its size, which may be 0; otherwise the profile is out of date, so record the stage again"
	case b.AtMost:
		return text + fmt.Sprintf("; the plan has at most %d bytes (%s): record the longest microbatch, and declare a size that depends on values with Microbatch.AtMost", b.Bytes, b.Class)
	}
	return text + fmt.Sprintf("; the plan has %d bytes (%s): record the stage again, or declare a size that depends on values with Microbatch.AtMost", b.Bytes, b.Class)
}

// Unwrap returns Err.
func (e *PlanError) Unwrap() error { return e.Err }

// Validate returns an ErrLayout that describes the first fault of a layout: a height out of range; a birth
// that is empty, not within the height, misaligned, or of an unknown or Lasting class; or places that do not
// match Levels or do not partition the births. It does not check whether buffers overlap while they are live.
func (l *Layout) Validate() error {
	if l.Height < 0 || l.Height > maxCapacity {
		return fmt.Errorf("%w: its height is %d bytes", ErrLayout, l.Height)
	}
	for i := range l.Allocations {
		b := &l.Allocations[i]
		if b.Bytes <= 0 || b.Offset < 0 || b.Offset > l.Height-b.Bytes {
			return fmt.Errorf("%w: birth %d has %d bytes at offset %d, but the height is %d", ErrLayout, i, b.Bytes, b.Offset, l.Height)
		}
		if b.Offset%layoutAlign != 0 {
			return fmt.Errorf("%w: birth %d is at offset %d, want a multiple of %d", ErrLayout, i, b.Offset, layoutAlign)
		}
		if b.Class.Lasting() || int(b.Class) >= NumClasses {
			return fmt.Errorf("%w: birth %d is of class %s, which a layout cannot place", ErrLayout, i, b.Class)
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
		return fmt.Errorf("%w: its places have %d of its %d allocations", ErrLayout, last, len(l.Allocations))
	}
	return nil
}

// layoutAlign is the minimum alignment of an offset: that of a 4-byte element.
const layoutAlign = 4
