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
	all    []birth // of valid
	area   int64   // bytes of the range that are set aside for the step, 0 where none are

	// So many bytes from the start of the range have their pages; are to be taken back by
	// RestorePages; have had pages before any ReleasePages.
	present, held, most int64

	place  int
	births []birth // up to the last of the place
	next   int     // the next of them
	group  int     // the first of those that may come in any order (AnyOrder)
	open   int     // the end of them
	marks  uint64  // the sum over the live buffers that the layout placed
	left   int     // so many were live at the end of the layout, and still are

	// Under -tags invariants: pages behind the step's part that nobody may touch, and what
	// the last step has touched of it.
	guard        int64
	touched, top int64
	surveyed     bool
}

// Lay sets the start of the range aside for the steps of a layout, with its pages, and
// from now on places every buffer that is not Lasting as the layout says. Nothing but
// Lasting buffers may be live. Lay(nil) goes back to the first gap that fits; what is
// still live then keeps its place, and the next Lay refuses because of it.
//
// A layout is examined when it is laid for the first time. It costs nothing to lay it
// again.
func (a *Arena) Lay(layout *Layout) error {
	if layout == nil {
		return a.unlay()
	}
	l := &a.laid
	if a.closed {
		return fmt.Errorf("%w: Lay", ErrClosed)
	}
	known := l.valid == layout
	if !known {
		if err := layout.Validate(); err != nil {
			return err
		}
	}
	if a.released > 0 {
		return fmt.Errorf("%w: Lay: RestorePages before the next step", ErrReleased)
	}
	if err := a.idle("Lay"); err != nil {
		return err
	}
	if err := a.unlay(); err != nil {
		return err
	}
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
	if !known {
		l.all = births(layout, l.all)
	}
	a.climb.watched = false
	*l = laid{layout: layout, valid: layout, all: l.all, area: area, present: max(l.present, area), held: l.held, most: l.most}
	if a.examined() && area%a.page == 0 && a.free.takeAt(area, a.page) {
		l.guard = a.page
		a.pages.protect(area, area+a.page, false)
	}
	return nil
}

// ready makes the pages of the step's part present.
func (a *Arena) ready(height, area int64) error {
	if a.examined() {
		if err := a.stale(a.pages.mem[:min(a.low, area)], poisoned); err != nil {
			return err
		}
	}
	if present := a.laid.present; present < area {
		if err := a.commit(a.low, area); err != nil {
			return fmt.Errorf("%w: the system does not commit %d bytes for a step: %w", ErrOutOfMemory, height, err)
		}
		if err := a.populate(present, area); err != nil {
			return fmt.Errorf("%w: the system does not supply the pages of %d bytes for a step: %w", ErrOutOfMemory, height, err)
		}
	}
	a.low = min(max(a.low, height), a.high)
	if a.examined() {
		fill(a.pages.mem[:area], untouched)
	}
	return nil
}

// unlay removes a layout. Its part of the range is free again when no buffer is left in it.
// In a build with -tags invariants it is an error where a step wrote what no buffer had.
func (a *Arena) unlay() error {
	l := &a.laid
	if l.layout == nil {
		return nil
	}
	var err error
	if a.examined() {
		err = a.survey()
	}
	if l.guard > 0 {
		a.pages.protect(l.area, l.area+l.guard, true)
		a.free.give(l.area, l.guard)
		l.guard = 0
	}
	l.layout, l.births, l.left = nil, nil, 0
	for i := range a.slots {
		if s := &a.slots[i]; s.mark != 0 && s.live() {
			l.left++
		}
	}
	a.vacate()
	return err
}

// vacate gives the step's part back where nothing is left in it.
func (a *Arena) vacate() {
	if l := &a.laid; l.area > 0 && l.left == 0 {
		a.free.give(0, l.area)
		l.area = 0
	}
}

// At says at which place of the layout the program is; see [Planned] and [PeakWatched].
func (a *Arena) At(place int) {
	l := &a.laid
	l.place, l.group, l.open = place, 0, 0
	if l.layout == nil {
		return
	}
	if places := l.layout.Places; uint(place) < uint(len(places)-1) {
		l.next, l.births = int(places[place]), l.all[:places[place+1]]
		return
	}
	l.next, l.births = 0, nil
}

// examine places a buffer that may not be just what the layout has next, or refuses.
func (a *Arena) examine(class Class, bytes int64) (Handle, error) {
	l := &a.laid
	if l.next >= len(l.births) {
		return Handle{}, a.refused(ErrUnplanned, class, bytes)
	}
	l.choose(class, bytes)
	b := &l.births[l.next]
	if !b.fits(class, bytes) {
		return Handle{}, a.refused(ErrUnplanned, class, bytes)
	}
	if b.free != l.marks || invariants.Enabled {
		if err := a.vacant(b, bytes); err != nil {
			return Handle{}, err
		}
		b.free = l.marks
	}
	h := a.enter(class, b.Offset, bytes)
	s := &a.slots[h.slot]
	s.mark, s.birth = b.mark, int32(l.next)
	l.next++
	l.marks += s.mark
	return h, nil
}

// refused says what was asked for, and what the layout has.
func (a *Arena) refused(err error, class Class, bytes int64) *PlanError {
	l := &a.laid
	e := &PlanError{Err: err, Place: l.place, Class: class, Bytes: bytes}
	if places := l.layout.Places; uint(l.place) < uint(len(places)-1) {
		e.Number = l.next - int(places[l.place])
	}
	if l.next < len(l.births) {
		e.Planned = l.births[l.next].Allocation
	}
	return e
}

// idle is nil where nothing of a step is live, else ErrLive with the owners.
func (a *Arena) idle(call string) error {
	if a.meter.live == a.lasting() {
		return nil
	}
	const most = 4
	var owners []string
	var count int
	for info := range a.All() {
		if info.Class.Lasting() {
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

// lasting returns the bytes of all buffers that are no step's.
func (a *Arena) lasting() int64 { return a.meter.classes[Resident] + a.meter.classes[Loss] }

// crowded says why the step's part has no room at the start of the range.
func (a *Arena) crowded(area int64) error {
	resident := a.meter.classes[Resident]
	return fmt.Errorf("%w: a step needs %d bytes; the arena has %d, of which %d are Resident", ErrOutOfMemory, area, a.capacity, resident)
}
