package layout

import "github.com/weir-ml/weir/memory/placement"

// groups returns the group of every allocation. The allocations of a group share one offset and do
// not overlap. They are the same birth in repeats that are a multiple of the cycle apart, and no
// life is longer than the cycle; or they share a location of the rotation of their segment. An
// allocation of the lead that dies in or after the cycle is in the group of the same birth there.
// Every other allocation is a group by itself.
func (p *player) groups(rotations map[int]*rotation) (group []int32, groups int) {
	starts, numbers := p.steadyStarts(), p.birthCounts()
	known := make([][]int32, len(p.spans)) // by segment, for each birth of its cycle, then for each location: the group plus 1, or 0
	for s, span := range p.spans {
		if span.cycle > 0 {
			n := span.cycle * int(numbers[s][len(numbers[s])-1])
			if rotations[s] != nil {
				n += int(rotations[s].count)
			}
			known[s] = make([]int32, n)
		}
	}
	group = make([]int32, len(p.allocations))
	for i := range p.allocations {
		it := &p.allocations[i]
		group[i] = int32(groups)
		if s := int(it.position.segment); s < len(p.spans) && p.spans[s].cycle > 0 {
			span, repeat, first := &p.spans[s], int(it.position.repeat), numbers[s]
			cyclic := repeat >= span.lead && repeat < p.program[s].Repeat-span.tail
			number := first[it.position.index] + it.ordinal
			if (cyclic || repeat < span.lead && it.death > starts[s]) && number < first[it.position.index+1] {
				phase := (repeat - span.lead) % span.cycle
				if phase < 0 {
					phase += span.cycle
				}
				at := phase*int(first[len(first)-1]) + int(number)
				if t := rotations[s]; t != nil && t.at[at] >= 0 {
					at = len(t.at) + int(t.at[at])
				}
				g := &known[s][at]
				if *g > 0 {
					group[i] = *g - 1
					continue
				}
				*g = int32(groups) + 1
			}
		}
		groups++
	}
	return group, groups
}

// birthCounts returns, by segment with a cycle and by action, the number of births before the
// action in a repeat of the cycle. The last number of a segment is the total.
func (p *player) birthCounts() [][]int32 {
	numbers := make([][]int32, len(p.spans))
	for s, span := range p.spans {
		if span.cycle > 0 {
			numbers[s] = make([]int32, len(p.program[s].Body)+1)
		}
	}
	for i := range p.allocations {
		it := &p.allocations[i]
		if s := int(it.position.segment); s < len(p.spans) && p.spans[s].cycle > 0 && int(it.repeat) == p.spans[s].lead {
			numbers[s][it.position.index+1]++
		}
	}
	for _, list := range numbers {
		for i := 1; i < len(list); i++ {
			list[i] += list[i-1]
		}
	}
	return numbers
}

// steadyStarts returns by segment the number of changes before its cycle begins.
func (p *player) steadyStarts() []int32 {
	starts := make([]int32, len(p.spans))
	for _, v := range p.visits {
		if s := int(v.at.segment); s < len(p.spans) && int(v.at.repeat) == p.spans[s].lead && v.at.index == 0 {
			starts[s] = v.since
		}
	}
	return starts
}

// problem returns the placement problem of the allocations, with one buffer for each group and
// gaps between the lives of its allocations. Time is the number of changes.
func (p *player) problem(group []int32, groups int, align func(int64) int64) *placement.Problem {
	problem := &placement.Problem{Buffers: make([]placement.Buffer, groups)}
	recurrences := make([]int32, groups) // births after the first one
	for _, g := range group {
		recurrences[g]++
	}
	gaps := make([]placement.Gap, len(group)-groups)
	for g := range recurrences {
		if recurrences[g]--; recurrences[g] > 0 {
			problem.Buffers[g].Gaps, gaps = gaps[:0:recurrences[g]], gaps[recurrences[g]:]
		}
	}
	for i := range p.allocations { // in order of birth
		it, b := &p.allocations[i], &problem.Buffers[group[i]]
		if b.Size == 0 {
			b.Lower, b.Upper, b.Size, b.Align = int64(it.birth), int64(it.death), it.bytes, align(it.bytes)
			continue
		}
		if b.Upper < int64(it.birth) {
			b.Gaps = append(b.Gaps, placement.Gap{Lower: b.Upper, Upper: int64(it.birth)})
		}
		b.Upper = int64(it.death)
	}
	return problem
}
