package memory

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/weir-ml/weir/internal/engine/invariants"
)

// laid is the state of a step's layout. The step's part begins at the start of the range, and offsets of
// planned buffers are relative to it.
type laid struct {
	layout *Layout // in force; nil between steps
	valid  *Layout // the layout validated last
	all    []birth // of valid
	area   int64   // size of the step's part; 0 if none is set aside

	// Offsets from the start of the range.
	present int64 // end of the bytes that have pages
	held    int64 // end of the bytes that RestorePages reclaims
	most    int64 // end of the bytes that had pages before any ReleasePages

	place  int
	births []birth // the part of all up to the last birth of the place
	next   int     // index of the next birth
	group  int     // index of the first birth that may come in any order (AllowReorder)
	open   int     // index after the last of these births
	marks  uint64  // the sum of the marks of live buffers that the layout placed
	unused int64   // bytes that the layout plans for live buffers and that they did not request
	left   int     // number of buffers that outlived the layout and are still live

	// Under -tags invariants: the size of the protected pages after the step's part, and the results of
	// Touched.
	guard        int64
	touched, top int64
	surveyed     bool
}

// birth is an allocation of the layout that was validated last.
type birth struct {
	Allocation
	// free is the sum of the marks of the buffers that were live when the bytes of the allocation were last
	// found to be free. As long as the sum is the same, the same buffers are live, so no search is needed. 0
	// means that the bytes have never been examined, or that no planned buffer was live.
	free uint64
	mark uint64 // of its offset and size
	// number is the index of the allocation in the layout; ResolveOrder restores this order.
	number int32
}

// mark returns a number for a range of an arena, never 0. Comparing the sums of the marks of all live buffers
// at two times shows whether the same buffers are live. A buffer has the mark of its allocation in the
// layout, even if it requested fewer bytes.
//
// The number is the folded product of wyhash. With a linear function, two buffers that swapped their sizes
// would have the same sum.
func mark(offset, bytes int64) uint64 {
	high, low := bits.Mul64(uint64(offset)^0x9e3779b97f4a7c15, uint64(bytes)^0xbf58476d1ce4e5b9)
	return high ^ low | 1
}

// SetLayout sets the start of the range aside for the steps of a layout and makes its pages present. From
// then on, every buffer that is not Lasting is placed according to the layout. Only Lasting buffers may be
// live. After SetLayout(nil), buffers again go to the first gap that fits; a planned buffer that is still
// live keeps its place, and makes the next SetLayout fail with ErrLive. See [Planned] for other errors.
//
// SetLayout validates each layout only once.
func (a *Arena) SetLayout(layout *Layout) error {
	if layout == nil {
		return a.unlay()
	}
	l := &a.laid
	if a.closed {
		return fmt.Errorf("%w: SetLayout", ErrClosed)
	}
	known := l.valid == layout
	if !known {
		if err := layout.Validate(); err != nil {
			return err
		}
	}
	if a.released > 0 {
		return fmt.Errorf("%w: SetLayout: RestorePages before the next step", ErrReleased)
	}
	if err := a.idle("SetLayout"); err != nil {
		return err
	}
	if err := a.unlay(); err != nil {
		return err
	}
	area := min(a.paged(layout.Height), a.capacity)
	if area > 0 && (layout.Height > area || !a.free.takeAt(0, area)) {
		return fmt.Errorf("%w: a step needs %d bytes; the arena has %d, of which %d are Resident", ErrOutOfMemory, area, a.capacity, a.meter.classes[Resident])
	}
	if err := a.commitPart(layout.Height, area); err != nil {
		if area > 0 {
			a.free.give(0, area)
		}
		return err
	}
	if !known {
		l.all = slices.Grow(l.all[:0], len(layout.Allocations))
		for i, b := range layout.Allocations {
			l.all = append(l.all, birth{Allocation: b, mark: mark(b.Offset, b.Bytes), number: int32(i)})
		}
	}
	a.peak.watched = false
	*l = laid{layout: layout, valid: layout, all: l.all, area: area, present: max(l.present, area), held: l.held, most: l.most}
	if a.examined() && area%a.page == 0 && a.free.takeAt(area, a.page) {
		l.guard = a.page
		a.pages.protect(area, area+a.page, false)
	}
	return nil
}

// commitPart makes the pages of the step's part present.
func (a *Arena) commitPart(height, area int64) error {
	if a.examined() {
		if err := a.stale(a.pages.mem[:min(a.low, area)], poisoned); err != nil {
			return err
		}
	}
	if present := a.laid.present; present < area {
		if err := a.commit(a.low, area); err != nil {
			return fmt.Errorf("%w: the system cannot commit %d bytes for a step: %w", ErrOutOfMemory, height, err)
		}
		if err := a.populate(present, area); err != nil {
			return fmt.Errorf("%w: the system cannot populate the pages of %d bytes for a step: %w", ErrOutOfMemory, height, err)
		}
	}
	a.low = min(max(a.low, height), a.high)
	if a.examined() {
		fill(a.pages.mem[:area], untouched)
	}
	return nil
}

// unlay removes the layout in force, if any. The step's part of the range becomes free again when no buffer
// is left in it. Under -tags invariants, unlay returns ErrOverrun if the step wrote to bytes outside all
// buffers.
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
	l.layout, l.births, l.left, l.unused = nil, nil, 0, 0
	for i := range a.slots {
		if s := &a.slots[i]; s.mark != 0 && s.live() {
			l.left++
		}
	}
	a.vacate()
	return err
}

// vacate frees the step's part if no buffer is left in it.
func (a *Arena) vacate() {
	if l := &a.laid; l.area > 0 && l.left == 0 {
		a.free.give(0, l.area)
		l.area = 0
	}
}

// SetPlace sets the current place of the layout; see [Planned] and [PeakWatched].
func (a *Arena) SetPlace(place int) {
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

// allocPlanned places a buffer according to the layout, or returns a PlanError.
func (a *Arena) allocPlanned(class Class, bytes int64) (Handle, error) {
	l := &a.laid
	if l.next >= len(l.births) {
		return Handle{}, a.planError(ErrUnplanned, class, bytes)
	}
	l.choose(class, bytes)
	b := &l.births[l.next]
	if !b.fits(class, bytes) {
		return Handle{}, a.planError(ErrUnplanned, class, bytes)
	}
	if b.free != l.marks || invariants.Enabled {
		if err := a.checkVacant(b, bytes); err != nil {
			return Handle{}, err
		}
		b.free = l.marks
	}
	h := a.enter(class, b.Offset, bytes)
	s := &a.slots[h.slot]
	s.mark, s.birth = b.mark, int32(l.next)
	l.next++
	l.marks += s.mark
	l.unused += b.Bytes - bytes
	return h, nil
}

// Unrequested returns the bytes that the layout in force plans for live buffers, and that they did not
// request because the layout's sizes are upper bounds.
func (a *Arena) Unrequested() int64 { return a.laid.unused }

// checkVacant returns an error if a live buffer overlaps the place of a new one. A buffer that requested
// fewer bytes than the layout reserves for it counts with all of the reserved bytes, because the next one
// may need them. Under -tags invariants, the error is ErrStale if bytes of the place were written while they
// belonged to no buffer. allocPlanned calls checkVacant if the live buffers are not those of the last check
// of the same birth, and always under -tags invariants.
func (a *Arena) checkVacant(b *birth, bytes int64) error {
	end := b.Offset + b.Bytes
	for i := range a.slots {
		s := &a.slots[i]
		if !s.live() {
			continue
		}
		size := a.size(s)
		if s.mark != 0 {
			size = a.laid.all[s.birth].Bytes
		}
		if s.off < end && b.Offset < s.off+size {
			e := a.planError(ErrOverlap, b.Class, bytes)
			e.Owner = a.info(uint32(i), s)
			return e
		}
	}
	if a.examined() {
		if err := a.stale(a.pages.mem[b.Offset:end], untouched); err != nil {
			return err
		}
		poison(a.pages.mem[b.Offset:end])
	}
	return nil
}

// planError returns an error that describes the requested buffer and the planned one.
func (a *Arena) planError(err error, class Class, bytes int64) *PlanError {
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

// AllowReorder lets the next n allocations of the place come in any order, until ResolveOrder.
func (a *Arena) AllowReorder(n int) {
	l := &a.laid
	l.group, l.open = l.next, min(l.next+n, len(l.births))
}

// choose moves the smallest sufficient birth, among those that may come now, to index next. The larger ones
// are left for requests that need them. If none is sufficient, it does nothing.
func (l *laid) choose(class Class, bytes int64) {
	best := -1
	for i := l.next; i < l.open; i++ {
		if l.births[i].fits(class, bytes) && (best < 0 || l.births[i].Bytes < l.births[best].Bytes) {
			best = i
		}
	}
	if best > l.next {
		l.births[l.next], l.births[best] = l.births[best], l.births[l.next]
	}
}

// fits reports whether the allocation may be used for a buffer of this class and size.
func (b *birth) fits(class Class, bytes int64) bool {
	return b.Class == class && (bytes == b.Bytes || bytes < b.Bytes && b.AtMost)
}

// move is a buffer that ResolveOrder moves to the place of another allocation.
type move struct {
	slot *slot
	to   int32 // index of the allocation in the layout
}

// ResolveOrder assigns the buffers allocated since AllowReorder to the layout's allocations: handles[i] is the
// buffer of the i-th of these allocations, or the zero Handle. It moves each buffer that occupies the place
// of another one, with its contents. It returns a [PlanError] if a buffer does not fit its allocation.
func (a *Arena) ResolveOrder(handles []Handle) error {
	l := &a.laid
	group := l.all[l.group:l.open]
	first := int32(l.group)
	l.group, l.open = 0, 0
	if l.layout == nil || len(group) == 0 {
		return nil
	}
	byNumber := func(a, b birth) int { return cmp.Compare(a.number, b.number) }
	if !slices.IsSortedFunc(group, byNumber) {
		for i := range a.slots {
			if s := &a.slots[i]; s.live() && s.mark != 0 && s.birth >= first && int(s.birth-first) < len(group) {
				s.birth = group[s.birth-first].number
			}
		}
		slices.SortFunc(group, byNumber)
	}
	a.moves, a.moved = a.moves[:0], a.moved[:0]
	defer func() { clear(a.moves) }()
	for i, h := range handles[:min(len(handles), len(group))] {
		s, to := a.lookup(h), first+int32(i)
		if s == nil || s.mark == 0 || s.birth == to {
			continue
		}
		if b := &group[i]; !b.fits(s.class, s.bytes) {
			return &PlanError{Err: ErrUnplanned, Place: l.place, Number: i, Class: s.class, Bytes: s.bytes, Planned: b.Allocation}
		}
		data, err := a.contents(s)
		if err != nil {
			return err
		}
		a.moves, a.moved = append(a.moves, move{s, to}), append(a.moved, data...)
	}
	for _, m := range a.moves {
		if a.examined() {
			poison(a.pages.mem[m.slot.off : m.slot.off+m.slot.bytes])
		}
	}
	rest := a.moved
	for _, m := range a.moves {
		b, data := &l.all[m.to], rest[:m.slot.bytes]
		rest = rest[m.slot.bytes:]
		l.marks += b.mark - m.slot.mark
		l.unused += b.Bytes - l.all[m.slot.birth].Bytes
		m.slot.birth, m.slot.mark, m.slot.off = m.to, b.mark, b.Offset
		if a.far != nil {
			if _, err := a.far.WriteAt(data, b.Offset); err != nil {
				return err
			}
			continue
		}
		copy(a.pages.mem[b.Offset:], data)
	}
	return nil
}
