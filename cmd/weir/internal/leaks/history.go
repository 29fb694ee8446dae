package leaks

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// history is one device's trace as a list of allocations, each with a start and an end.
type history struct {
	device      int
	trace       []snapshot.TraceEntry
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

// group is the set of allocations with one call stack and one size class.
type group struct {
	allocations []int // in the history
	before      int   // live blocks that were allocated before the trace
}

// newHistory finds the end of every allocation, and groups the allocations.
func newHistory(s *snapshot.Snapshot, device int) *history {
	h := &history{device: device, stacks: stacker{map[stackKey]int{}, map[string]int{"": 0}}}
	if device < len(s.Traces) {
		h.trace = s.Traces[device]
	}
	open := map[int64]int{} // allocations by address
	for i := range h.trace {
		e := &h.trace[i]
		switch e.Action {
		case snapshot.Alloc:
			open[e.Address] = len(h.allocations)
			h.allocations = append(h.allocations, allocation{frames: e.Frames, size: e.Size, stack: h.stacks.number(e.Frames)})
		case snapshot.FreeCompleted:
			if at, ok := open[e.Address]; ok {
				h.allocations[at].freed, h.allocations[at].end = true, len(h.allocations)
				delete(open, e.Address)
			} else {
				h.before.Frees++
			}
		}
	}
	classes := h.classes()
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
			if g := classes[stackSize{h.stacks.number(b.Frames), b.Requested}]; g != nil {
				g.before++
			}
		}
	}
	return h
}

// stackSize is a call stack and an exact size.
type stackSize struct {
	stack int
	size  int64
}

// apart is the minimum ratio between a size and the next smaller one of the same call stack for them to be in
// different size classes.
const apart = 16

// classes groups the allocations by call stack and size class, and returns the group of each stack and size.
// With packed sequences the size of a tensor differs in each microbatch, so the sizes of a stack are one class
// as long as each is less than apart times the next smaller one. Without a stack, each size is a class.
func (h *history) classes() map[stackSize]*group {
	groups := map[stackSize]*group{}
	for i := range h.allocations {
		groups[stackSize{h.allocations[i].stack, h.allocations[i].size}] = nil
	}
	kinds := slices.SortedFunc(maps.Keys(groups), func(a, b stackSize) int { return cmp.Or(a.stack-b.stack, cmp.Compare(a.size, b.size)) })
	for i, k := range kinds {
		if i > 0 && k.stack != 0 && k.stack == kinds[i-1].stack && k.size/apart < kinds[i-1].size {
			groups[k] = groups[kinds[i-1]]
		} else {
			groups[k] = &group{}
		}
	}
	for i := range h.allocations {
		g := groups[stackSize{h.allocations[i].stack, h.allocations[i].size}]
		if g.allocations == nil {
			h.groups = append(h.groups, g)
		}
		g.allocations = append(g.allocations, i)
	}
	return groups
}
