package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// groups returns the group of every allocation. The allocations of a group share one offset and do
// not overlap:
//
//   - In the cycle of a segment each birth has a location, and the births of a location are a group.
//     Without a rotation, the same birth in repeats that are a multiple of the cycle apart has the
//     same location, and no life is longer than the cycle.
//   - An allocation of the lead that dies in or after the cycle is in the group of the same birth
//     there.
//   - Every other allocation is a group by itself.
func (p *player) groups() (group []int32, groups int) {
	group = make([]int32, len(p.allocations))
	starts := make([]int32, len(p.spans))  // by segment: the number of changes before its cycle
	first := make([][]int32, len(p.spans)) // by segment: firstBirths
	known := make([][]int32, len(p.spans)) // by segment and location: the group plus 1, or 0 before the first birth
	for s, span := range p.spans {
		if span.cycle > 0 {
			starts[s], first[s] = p.cycleVisits(s)[0].start, p.firstBirths(s)
			known[s] = make([]int32, span.cycle*int(first[s][len(first[s])-1]))
		}
	}
	for i := range p.allocations {
		it := &p.allocations[i]
		group[i] = int32(groups)
		if s := int(it.position.segment); s < len(p.spans) && p.spans[s].cycle > 0 {
			span, repeat, first := &p.spans[s], int(it.position.repeat), first[s]
			inCycle := repeat >= span.lead && repeat < p.program[s].Repeat-span.tail
			birth := first[it.position.index] + it.ordinal
			if (inCycle || repeat < span.lead && it.death > starts[s]) && birth < first[it.position.index+1] {
				phase := (repeat - span.lead) % span.cycle
				if phase < 0 {
					phase += span.cycle
				}
				location := int32(phase)*first[len(first)-1] + birth
				if rotation := p.skip.rotations[s]; rotation != nil {
					location = rotation.locations[location]
				}
				if g := known[s][location]; g > 0 {
					group[i] = g - 1
					continue
				}
				known[s][location] = int32(groups) + 1
			}
		}
		groups++
	}
	return group, groups
}

// cycleVisits returns the actions of the first repeat of a segment's cycle, and the action that
// follows them.
func (p *player) cycleVisits(segment int) []visit {
	at := position{int32(segment), int32(p.spans[segment].lead), 0}
	i, _ := slices.BinarySearchFunc(p.visits, at, func(v visit, at position) int {
		return cmp.Or(cmp.Compare(v.at.segment, at.segment), cmp.Compare(v.at.repeat, at.repeat), cmp.Compare(v.at.index, at.index))
	})
	return p.visits[i : i+len(p.program[segment].Body)+1]
}

// firstBirths returns, for each action of a segment, the number of births before it in a repeat of
// the cycle, followed by the number of all births of the repeat.
func (p *player) firstBirths(segment int) []int32 {
	first := []int32{0}
	visits := p.cycleVisits(segment)
	for i := range visits[1:] {
		births := first[i]
		for _, change := range p.log[visits[i].start:visits[i+1].start] {
			if change >= 0 {
				births++
			}
		}
		first = append(first, births)
	}
	return first
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
