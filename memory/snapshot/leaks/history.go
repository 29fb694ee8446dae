package leaks

import "github.com/weir-ml/weir/memory/snapshot"

// history is one device's trace as a list of allocations, each with a start and an end.
type history struct {
	device      int
	trace       []snapshot.Entry
	segments    []*snapshot.Segment
	allocations []allocation // in order
	groups      []*group     // in order of their first allocations
	stacks      stacker
	before      Before
	live        int64
	reserved    int64
}

// allocation is one allocation of the trace.
type allocation struct {
	frames []snapshot.Frame
	size   int64
	stack  int // number of its call stack
	freed  bool
	end    int // number of allocations before its end, if it was freed
}

// group is the set of allocations with the same call stack and size.
type group struct {
	allocations []int // in the history
	before      int   // live blocks that were allocated before the trace
}

// newHistory finds the end of every allocation, and groups the allocations.
func newHistory(s *snapshot.Snapshot, device int) *history {
	h := &history{device: device, stacks: stacker{map[place]int{}, map[string]int{"": 0}}}
	if device < len(s.Traces) {
		h.trace = s.Traces[device]
	}
	type key struct {
		stack int
		size  int64
	}
	groups := map[key]*group{}
	open := map[int64]int{} // allocations by address
	for i := range h.trace {
		e := &h.trace[i]
		switch e.Action {
		case snapshot.Alloc:
			stack := h.stacks.number(e.Frames)
			g := groups[key{stack, e.Size}]
			if g == nil {
				g = &group{}
				groups[key{stack, e.Size}] = g
				h.groups = append(h.groups, g)
			}
			g.allocations = append(g.allocations, len(h.allocations))
			open[e.Address] = len(h.allocations)
			h.allocations = append(h.allocations, allocation{frames: e.Frames, size: e.Size, stack: stack})
		case snapshot.FreeCompleted:
			if at, ok := open[e.Address]; ok {
				h.allocations[at].freed, h.allocations[at].end = true, len(h.allocations)
				delete(open, e.Address)
			} else {
				h.before.Frees++
			}
		}
	}
	for i := range s.Segments {
		segment := &s.Segments[i]
		if segment.Device != device {
			continue
		}
		h.segments = append(h.segments, segment)
		h.reserved += segment.Size
		for _, b := range segment.Blocks {
			if b.State == snapshot.Inactive {
				continue
			}
			h.live += b.Size
			if _, ok := open[b.Address]; ok {
				continue
			}
			h.before.Blocks++
			h.before.Bytes += b.Requested
			h.before.Full = h.before.Full || len(b.Frames) > 0 && len(h.trace) > 0
			if g := groups[key{h.stacks.number(b.Frames), b.Requested}]; g != nil {
				g.before++
			}
		}
	}
	return h
}
