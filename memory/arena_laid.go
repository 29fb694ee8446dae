package memory

import (
	"fmt"
	"strings"

	"github.com/weir-ml/weir/internal/invariants"
)

// laid is what an arena knows about the layout of its steps. The step's part is the
// start of the range: a planned buffer lies at its offset from there.
type laid struct {
	layout *Layout // in force, nil between steps
	valid  *Layout // was validated
	area   int64   // bytes of the range that are set aside for the step, 0 where none are
	// present is as much of the start of the range as has its pages.
	present int64

	births     []Birth // of the layout
	place      int
	next, last int    // births that are left of the place
	marks      uint64 // the sum over the live buffers that the layout placed
	left       int    // so many were live when the layout ended, and still are
}

// Lay sets the start of the range aside for the steps of a layout, with its pages, and
// from now on places every buffer that is not Resident as the layout says. Nothing but
// Resident buffers may be live. Lay(nil) goes back to the first gap that fits; what is
// still live then keeps its place, and the next Lay refuses because of it.
//
// A layout is examined when it is laid for the first time. It costs nothing to lay it
// again.
func (a *Arena) Lay(layout *Layout) error {
	if layout == nil {
		a.unlay()
		return nil
	}
	l := &a.laid
	if a.closed {
		return fmt.Errorf("%w: Lay", ErrClosed)
	}
	if l.valid != layout {
		if err := layout.Validate(); err != nil {
			return err
		}
	}
	if err := a.idle("Lay"); err != nil {
		return err
	}
	a.unlay()
	area := min(a.paged(layout.Height), a.capacity)
	if area > 0 && (layout.Height > area || !a.free.takeAt(0, area)) {
		return a.crowded(area)
	}
	if err := a.ready(layout.Height, area); err != nil {
		if area > 0 {
			a.free.give(0, area)
		}
		return err
	}
	*l = laid{layout: layout, valid: layout, births: layout.Births, area: area, present: max(l.present, area)}
	return nil
}

// paged rounds a size up to whole pages.
func (a *Arena) paged(bytes int64) int64 { return (bytes + a.page - 1) &^ (a.page - 1) }

// ready makes the pages of the step's part present.
func (a *Arena) ready(height, area int64) error {
	if invariants.Enabled {
		if err := a.stale(a.pages.mem[:min(a.low, area)]); err != nil {
			return err
		}
	}
	if present := a.laid.present; present < area {
		if err := a.pages.commit(a.low, area); err != nil {
			return fmt.Errorf("%w: the system does not commit %d bytes for a step: %w", ErrOutOfMemory, height, err)
		}
		if err := a.pager.Populate(a.pages.mem[present:area]); err != nil {
			return fmt.Errorf("%w: the system does not supply the pages of %d bytes for a step: %w", ErrOutOfMemory, height, err)
		}
	}
	a.low = min(max(a.low, height), a.high)
	if invariants.Enabled {
		poison(a.pages.mem[:area])
	}
	return nil
}

// unlay ends a layout. Its part of the range is free again when no buffer is left in it.
func (a *Arena) unlay() {
	l := &a.laid
	l.layout = nil
	l.left = 0
	for i := range a.slots {
		if s := &a.slots[i]; s.mark != 0 && s.live() {
			l.left++
		}
	}
	a.vacate()
}

// vacate gives the step's part back where nothing is left in it.
func (a *Arena) vacate() {
	if l := &a.laid; l.area > 0 && l.left == 0 {
		a.free.give(0, l.area)
		l.area = 0
	}
}

// At says at which place of the layout the program is.
func (a *Arena) At(place int) {
	l := &a.laid
	if l.layout == nil {
		return
	}
	l.place, l.next, l.last = place, 0, 0
	if places := l.layout.Places; uint(place) < uint(len(places)-1) {
		l.next, l.last = int(places[place]), int(places[place+1])
	}
}

// examine is nil where a buffer may be placed although it is not just what the layout
// has next, and sees to it that there is an unused slot.
func (a *Arena) examine(class Class, bytes int64) error {
	l := &a.laid
	if bytes <= 0 || int(class) >= NumClasses {
		return a.refusal(class, bytes)
	}
	if l.next >= l.last {
		return a.refused(ErrUnplanned, class, bytes)
	}
	b := &l.births[l.next]
	if b.Class != class || bytes > b.Bytes || bytes < b.Bytes && !b.AtMost {
		return a.refused(ErrUnplanned, class, bytes)
	}
	if b.Live != l.marks || invariants.Enabled {
		if err := a.vacant(b, bytes); err != nil {
			return err
		}
	}
	a.grow()
	return nil
}

// vacant looks for a live buffer where the layout has a new one. The arena does so where
// what is live is not what the layout has there, and under -tags invariants always.
func (a *Arena) vacant(b *Birth, bytes int64) error {
	end := b.Offset + b.Bytes
	for i := range a.slots {
		if s := &a.slots[i]; s.live() && s.off < end && b.Offset < s.off+s.size {
			e := a.refused(ErrOverlap, b.Class, bytes)
			e.Owner = a.info(uint32(i), s)
			return e
		}
	}
	if invariants.Enabled {
		if err := a.stale(a.pages.mem[b.Offset:end]); err != nil {
			return err
		}
		poison(a.pages.mem[b.Offset:end])
	}
	return nil
}

// refused says what was asked for, and what the layout has.
func (a *Arena) refused(err error, class Class, bytes int64) *PlanError {
	l := &a.laid
	e := &PlanError{Err: err, Place: l.place, Class: class, Bytes: bytes}
	if places := l.layout.Places; uint(l.place) < uint(len(places)-1) {
		e.Number = l.next - int(places[l.place])
	}
	if l.next < l.last {
		e.Planned = l.births[l.next]
	}
	return e
}

// idle is nil where nothing of a step is live, else ErrLive with the owners.
func (a *Arena) idle(call string) error {
	if a.meter.live == a.meter.classes[Resident] {
		return nil
	}
	const most = 4
	var owners []string
	var count int
	for info := range a.All() {
		if info.Class == Resident {
			continue
		}
		if count++; count <= most {
			owners = append(owners, fmt.Sprintf("%d bytes (%s; %d plain, %d held; allocation %d)", info.Bytes, info.Class, info.Plain, info.Held, info.Serial))
		}
	}
	if count > most {
		owners = append(owners, fmt.Sprintf("%d more", count-most))
	}
	return fmt.Errorf("%w: %s: %s", ErrLive, call, strings.Join(owners, ", "))
}

// crowded says why the step's part has no room at the start of the range.
func (a *Arena) crowded(area int64) error {
	resident := a.meter.classes[Resident]
	return fmt.Errorf("%w: a step needs %d bytes; the arena has %d, of which %d are Resident", ErrOutOfMemory, area, a.capacity, resident)
}
