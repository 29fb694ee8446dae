package leaks

import "github.com/weir-ml/weir/memory/snapshot"

// history is the trace of one device as allocations with a start and an end.
type history struct {
	device   int
	trace    []snapshot.Entry
	segments []snapshot.Segment
	births   []birth // in order
	before   Before
	earlier  map[kin]int // number of live blocks that were allocated before the trace
	live     int64
	reserved int64
}

// birth is one allocation of the trace.
type birth struct {
	frames  []snapshot.Frame
	size    int64
	stack   int // index of its call stack
	freed   bool
	endedBy int // number of allocations before its end
}

// kin is the key of a group of allocations.
type kin struct {
	stack int
	size  int64
}

// follow finds the end of every allocation.
func follow(s *snapshot.Snapshot, device int) *history {
	h := &history{device: device, earlier: map[kin]int{}}
	if device < len(s.Traces) {
		h.trace = s.Traces[device]
	}
	open := map[int64]int{} // births by address
	stacks := stacker{}
	for i := range h.trace {
		e := &h.trace[i]
		switch e.Action {
		case snapshot.Alloc:
			open[e.Address] = len(h.births)
			h.births = append(h.births, birth{frames: e.Frames, size: e.Size, stack: stacks.number(e.Frames)})
		case snapshot.FreeCompleted:
			if at, ok := open[e.Address]; ok {
				h.births[at].freed, h.births[at].endedBy = true, len(h.births)
				delete(open, e.Address)
			} else {
				h.before.Frees++
			}
		}
	}
	for i := range s.Segments {
		if s.Segments[i].Device != device {
			continue
		}
		segment := &s.Segments[i]
		h.segments = append(h.segments, *segment)
		h.reserved += segment.Size
		for _, b := range segment.Blocks {
			if b.State == snapshot.Inactive {
				continue
			}
			h.live += b.Size
			if _, ok := open[b.Address]; !ok {
				h.before.Blocks++
				h.before.Bytes += b.Requested
				h.before.Full = h.before.Full || len(b.Frames) > 0 && len(h.trace) > 0
				h.earlier[kin{stacks.number(b.Frames), b.Requested}]++
			}
		}
	}
	return h
}

// groups returns the allocations with the same stack and size, in order of the first one.
func (h *history) groups() [][]int {
	at := map[kin]int{}
	var groups [][]int
	for i := range h.births {
		k := kin{h.births[i].stack, h.births[i].size}
		g, ok := at[k]
		if !ok {
			g = len(groups)
			at[k] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}
