package memory

import (
	"cmp"
	"slices"
)

// AnyOrder says that the next n allocations of the place may come in any order, until Settle.
func (a *Arena) AnyOrder(n int) {
	l := &a.laid
	l.group, l.open = l.next, min(l.next+n, len(l.births))
}

// choose brings forward the smallest of the allocations that may come now which has room. It
// never takes what only a later one can use: that is larger.
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

// fits reports whether the layout may have a buffer of this class and size here.
func (b *birth) fits(class Class, bytes int64) bool {
	return b.Class == class && (bytes == b.Bytes || bytes < b.Bytes && b.AtMost)
}

// Settle says which of the allocations since AnyOrder each buffer is: handles[i] is the i-th of
// the layout, or none. What lies in the place of another one is moved, with its contents.
func (a *Arena) Settle(handles []Handle) error {
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
	type move struct {
		slot *slot
		to   int32
		data []byte
	}
	var moves []move
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
		moves = append(moves, move{s, to, slices.Clone(data)})
	}
	for _, m := range moves {
		if a.examined() {
			poison(a.pages.mem[m.slot.off : m.slot.off+m.slot.bytes])
		}
	}
	for _, m := range moves {
		b := &l.all[m.to]
		l.marks += b.mark - m.slot.mark
		m.slot.birth, m.slot.mark, m.slot.off = m.to, b.mark, b.Offset
		if a.far != nil {
			if _, err := a.far.WriteAt(m.data, b.Offset); err != nil {
				return err
			}
			continue
		}
		copy(a.pages.mem[b.Offset:], m.data)
	}
	return nil
}
