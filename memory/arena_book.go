package memory

import (
	"cmp"
	"iter"
	"slices"
)

// Live returns the bytes of all buffers, as they were asked for.
func (a *Arena) Live() int64 { return a.meter.live }

// Stats fills s. Reserved is the high-water mark: the bytes at both ends of the
// range that buffers ever covered, without those whose pages are released.
func (a *Arena) Stats(s *Stats) {
	a.meter.Stats(s)
	s.Reserved = a.low + a.capacity - a.high
	if a.released == 0 {
		return
	}
	live := a.meter.live
	for scope := range Scope(NumScopes) {
		if r := &a.regions[scope]; r.released {
			s.Reserved -= a.reserved(scope)
			live -= r.live
		}
	}
	s.Reserved = max(s.Reserved, live) // a full arena has buffers of a step among Weights
}

// ResetPeak makes what is live now the peak.
func (a *Arena) ResetPeak() { a.meter.ResetPeak() }

// Mark returns a point in the order of allocations.
func (a *Arena) Mark() uint64 { return uint64(a.meter.allocs) }

// Reclaim frees every buffer allocated since mark that is not Lasting, whatever
// references there are to it, and returns the bytes freed.
func (a *Arena) Reclaim(mark uint64) int64 {
	var freed int64
	for i := range a.slots {
		if s := &a.slots[i]; s.live() && s.serial >= mark && !s.class.Lasting() {
			freed += a.take(uint32(i), s)
		}
	}
	return freed
}

// All returns the live buffers in the order of their allocation. It is a
// snapshot from the start of the iteration, and allocates.
func (a *Arena) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		var live []Info
		for i := range a.slots {
			if s := &a.slots[i]; s.live() {
				live = append(live, a.info(uint32(i), s))
			}
		}
		inOrder(live, yield)
	}
}

// info describes the live buffer in slot i.
func (a *Arena) info(i uint32, s *slot) Info {
	return Info{
		Handle: Handle{i, s.generation, a.number},
		Class:  s.class, Bytes: s.bytes, Plain: s.plain, Held: s.held, Serial: s.serial, Offset: s.off,
	}
}

// inOrder yields infos by their serial number.
func inOrder(live []Info, yield func(Info) bool) {
	slices.SortFunc(live, func(x, y Info) int { return cmp.Compare(x.Serial, y.Serial) })
	for _, info := range live {
		if !yield(info) {
			return
		}
	}
}
