package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// birthsByPlace returns, for each place, the number of births at the places before it, followed by
// the number of all births of the layout. Repeats that share places have the same births.
func (t *trace) birthsByPlace() []int32 {
	births := make([]int32, 1, t.stepEnd()+2)
	for i, action := range t.actions {
		if t.place(action.at) < len(births)-1 {
			continue // already reached in an earlier repeat; new places are reached in order
		}
		count := births[len(births)-1]
		for _, change := range t.changes(i) {
			if change >= 0 {
				count++
			}
		}
		births = append(births, count)
	}
	return births
}

// changes returns the changes of an action, by its index in t.actions.
func (t *trace) changes(action int) []int32 {
	if action+1 == len(t.actions) {
		return t.log[t.actions[action].start:]
	}
	return t.log[t.actions[action].start:t.actions[action+1].start]
}

// groups returns the group of every allocation. The allocations of a group share one offset and do
// not overlap:
//
//   - In the cycle of a segment each birth has a location, and the births of a location are a group.
//     Without a rotation, a birth has the same location in repeats that are a multiple of the cycle
//     apart, and no life is longer than the cycle.
//   - An allocation of the lead that dies in or after the cycle is in the group of the same birth
//     there. (The lead ends in the same state as each repeat of the cycle, so there is one.)
//   - Every other allocation is a group of its own.
func (t *trace) groups() (group []int32, groups int) {
	group = make([]int32, len(t.allocations))
	births := t.births
	known := make([]int32, births[len(births)-1]) // by birth of the layout, or location: the group plus 1, or 0 before its first allocation
	starts := make([]int32, len(t.segments))      // by segment: the number of changes before its cycle
	for s := range t.segments {
		if t.segments[s].Cycle > 0 {
			starts[s] = t.cycleActions(s)[0].start
		}
	}
	for i := range t.allocations {
		it := &t.allocations[i]
		group[i] = int32(groups)
		if s := int(it.position.segment); s < len(t.segments) && t.segments[s].Cycle > 0 {
			places, repeat := &t.segments[s], int(it.position.repeat)
			inCycle := repeat >= places.Lead && repeat < places.Repeat-places.Tail
			phase := (repeat - places.Lead) % places.Cycle
			if phase < 0 {
				phase += places.Cycle
			}
			first := places.First + places.Lead*places.Body // place of the cycle
			place := first + phase*places.Body + int(it.position.index)
			birth := births[place] + it.ordinal
			if (inCycle || repeat < places.Lead && it.death > starts[s]) && birth < births[place+1] {
				if rotation := t.rotations[s]; rotation != nil {
					birth = births[first] + rotation.locations[birth-births[first]]
				}
				if g := known[birth]; g > 0 {
					group[i] = g - 1
					continue
				}
				known[birth] = int32(groups) + 1
			}
		}
		groups++
	}
	return group, groups
}

// cycleActions returns the actions of the first repeat of a segment's cycle, and the action that
// follows them.
func (t *trace) cycleActions(segment int) []tracedAction {
	at := position{int32(segment), int32(t.segments[segment].Lead), 0}
	i, _ := slices.BinarySearchFunc(t.actions, at, func(a tracedAction, at position) int {
		return cmp.Or(cmp.Compare(a.at.segment, at.segment), cmp.Compare(a.at.repeat, at.repeat), cmp.Compare(a.at.index, at.index))
	})
	return t.actions[i : i+len(t.program[segment].Body)+1]
}

// problem returns the placement problem of the allocations, with one buffer for each group and
// gaps between the lives of its allocations. Time is the number of changes.
func (t *trace) problem(group []int32, groups int, align func(int64) int64) *placement.Problem {
	problem := &placement.Problem{Buffers: make([]placement.Buffer, groups)}
	recurrences := make([]int32, groups) // number of births after the first one
	for _, g := range group {
		recurrences[g]++
	}
	gaps := make([]placement.Gap, len(group)-groups)
	for g := range recurrences {
		if recurrences[g]--; recurrences[g] > 0 {
			problem.Buffers[g].Gaps, gaps = gaps[:0:recurrences[g]], gaps[recurrences[g]:]
		}
	}
	for i := range t.allocations { // in order of birth
		it, b := &t.allocations[i], &problem.Buffers[group[i]]
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
