package layout

import "github.com/weir-ml/weir/memory/placement"

// groups returns the group of every item. The items of a group share one offset. They are
// born at the same action of repeats of the same phase, and do not overlap because the cycle
// is as long as the longest life; or they share a place in rotation, given by segment in
// taken.
func (p *player) groups(taken map[int]*rotation) (group []int32, groups int) {
	starts, numbers := p.steadyFrom(), p.numbers()
	known := make([][]int32, len(p.spans)) // by segment, for each birth of its cycle: the group plus 1
	for s, span := range p.spans {
		if span.cycle > 0 {
			n := span.cycle * int(numbers[s][len(numbers[s])-1])
			if taken[s] != nil {
				n += int(taken[s].count)
			}
			known[s] = make([]int32, n)
		}
	}
	group = make([]int32, len(p.items))
	for i := range p.items {
		it := &p.items[i]
		group[i] = int32(groups)
		if s := int(it.place.segment); s < len(p.spans) && p.spans[s].cycle > 0 {
			span, repeat, first := &p.spans[s], int(it.place.repeat), numbers[s]
			cyclic := repeat >= span.lead && repeat < p.program[s].Repeat-span.tail
			number := first[it.place.index] + it.ordinal
			if (cyclic || repeat < span.lead && it.death > starts[s]) && number < first[it.place.index+1] {
				phase := (repeat - span.lead) % span.cycle
				if phase < 0 {
					phase += span.cycle
				}
				at := phase*int(first[len(first)-1]) + int(number)
				if t := taken[s]; t != nil && t.at[at] >= 0 {
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

// numbers returns, by segment with a cycle and by action, the number of births in a repeat
// of the cycle before the action. The last number is the total.
func (p *player) numbers() [][]int32 {
	numbers := make([][]int32, len(p.spans))
	for s, span := range p.spans {
		if span.cycle > 0 {
			numbers[s] = make([]int32, len(p.program[s].Body)+1)
		}
	}
	for i := range p.items {
		it := &p.items[i]
		if s := int(it.place.segment); s < len(p.spans) && p.spans[s].cycle > 0 && int(it.repeat) == p.spans[s].lead {
			numbers[s][it.place.index+1]++
		}
	}
	for _, list := range numbers {
		for i := 1; i < len(list); i++ {
			list[i] += list[i-1]
		}
	}
	return numbers
}

// steadyFrom returns by segment the number of changes before its cycle begins.
func (p *player) steadyFrom() []int32 {
	starts := make([]int32, len(p.spans))
	for _, v := range p.visits {
		if s := int(v.at.segment); s < len(p.spans) && int(v.at.repeat) == p.spans[s].lead && v.at.index == 0 {
			starts[s] = v.since
		}
	}
	return starts
}

// problem returns the placement problem of the items, with one buffer for each group and
// gaps between the lives of its items. Time is the number of changes.
func (p *player) problem(group []int32, groups int, align func(int64) int64) *placement.Problem {
	problem := &placement.Problem{Buffers: make([]placement.Buffer, groups)}
	again := make([]int32, groups) // births after the first one
	for _, g := range group {
		again[g]++
	}
	gaps := make([]placement.Gap, len(group)-groups)
	for g := range again {
		if again[g]--; again[g] > 0 {
			problem.Buffers[g].Gaps, gaps = gaps[:0:again[g]], gaps[again[g]:]
		}
	}
	for i := range p.items { // in order of birth
		it, b := &p.items[i], &problem.Buffers[group[i]]
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
