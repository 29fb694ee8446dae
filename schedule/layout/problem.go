package layout

import (
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// ties says which items have one offset: those that are born at the same action of
// repeats of the same phase, and do not live at the same time because the cycle is as
// long as the longest life. It returns the group of every item.
func (p *player) ties() (group []int32, groups int) {
	type tie struct{ segment, phase, index, ordinal int32 }
	known := map[tie]int32{}
	starts := p.steadyFrom()
	group = make([]int32, len(p.items))
	for i := range p.items {
		it := &p.items[i]
		if s := int(it.place.segment); s < len(p.spans) && p.spans[s].cycle > 0 {
			span, repeat := &p.spans[s], int(it.place.repeat)
			cyclic := repeat >= span.lead && repeat < p.program[s].Repeat-span.tail
			if cyclic || repeat < span.lead && it.death > starts[s] {
				phase := (repeat - span.lead) % span.cycle
				if phase < 0 {
					phase += span.cycle
				}
				t := tie{it.place.segment, int32(phase), it.place.index, it.ordinal}
				g, ok := known[t]
				if !ok {
					g = int32(groups)
					groups++
					known[t] = g
				}
				group[i] = g
				continue
			}
		}
		group[i] = int32(groups)
		groups++
	}
	return group, groups
}

// steadyFrom returns by segment how many changes there are before its cycle begins.
func (p *player) steadyFrom() []int32 {
	starts := make([]int32, len(p.spans))
	for _, v := range p.visits {
		if s := int(v.at.segment); s < len(p.spans) && int(v.at.repeat) == p.spans[s].lead && v.at.index == 0 {
			starts[s] = v.since
		}
	}
	return starts
}

// problem returns the items as a problem of placement, one buffer for a group: it has
// gaps between the lives of its items. Time is the number of changes.
func (p *player) problem(group []int32, groups int, align func(int64) int64) *placement.Problem {
	problem := &placement.Problem{Buffers: make([]placement.Buffer, groups)}
	for i := range p.items { // in order of birth
		it, b := &p.items[i], &problem.Buffers[group[i]]
		if b.Size == 0 {
			*b = placement.Buffer{Lower: int64(it.birth), Upper: int64(it.death), Size: it.bytes, Align: align(it.bytes)}
			continue
		}
		if b.Upper < int64(it.birth) {
			b.Gaps = append(b.Gaps, placement.Gap{Lower: b.Upper, Upper: int64(it.birth)})
		}
		b.Upper = int64(it.death)
	}
	return problem
}

// natural is the alignment that buffers should have: a cache line, or for smaller ones
// the next power of two below.
func natural(bytes int64) int64 {
	align := int64(leastAlign)
	for align < 64 && align*2 <= bytes {
		align *= 2
	}
	return align
}

// whole is the largest alignment that leaves no padding behind a buffer of this size.
func whole(bytes int64) int64 {
	return min(max(bytes&-bytes, leastAlign), 64)
}

const leastAlign = 4

// padded reports whether buffers of a problem cannot lie side by side without padding.
func padded(problem *placement.Problem) bool {
	return slices.ContainsFunc(problem.Buffers, func(b placement.Buffer) bool { return b.Size%max(b.Align, 1) != 0 })
}
