package schedule

import (
	"fmt"
	"slices"
)

// GroupedInterleave is the interleaved schedule of "PipeOffload", which holds less
// than Interleaved does: microbatches in groups, at each of a rank's stages in turn,
// and all of it in step. Every rank runs an F, an I and a W in every three slots, and
// a W follows its I.
//
// With groups of P, the default, a rank has P microbatches in flight at most, where
// Interleaved has up to half as many again; where F, I and W take equally long the
// makespan has a bubble of 2(P-1)/V of them. Smaller groups, down to P/2, hold down to
// 3P/4 on two stages a rank, and wait longer. Any size of group works.
//
// Each rank has the same number of stages, looped, as for Interleaved. Of a last,
// smaller group it is the order of a whole one, without the microbatches that are not
// there. The size of the plan depends on stages and group, not on the number of
// microbatches. Errors wrap ErrParams.
func GroupedInterleave(p Params) (*Plan, error) {
	if err := p.check("grouped-interleave", takesGroup); err != nil {
		return nil, err
	}
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	if stages%ranks != 0 || !slices.Equal(p.Placement.Rank, Looped(ranks, stages).Rank) {
		return nil, fmt.Errorf("%w: grouped-interleave has the same number of stages on each rank, stage s on rank s mod %d: place %d, %d or another multiple of %d stages so",
			ErrParams, ranks, ranks, 2*ranks, ranks)
	}
	name, group := "grouped-interleave", ranks
	if p.Group > 0 && p.Group != ranks {
		name, group = fmt.Sprintf("grouped-interleave group=%d", p.Group), min(p.Group, max(p.Microbatches, ranks)) // a larger one is a group of all
	}
	if int64(group)*int64(stages) > maxBody/4 {
		return nil, fmt.Errorf("%w: groups of %d microbatches over %d stages take more than %d actions to write out: use smaller groups",
			ErrParams, group, stages, maxBody)
	}

	programs := make([][]Segment, ranks)
	for rank := range programs {
		block, laps := groupBlock(ranks, stages/ranks, group, rank)
		t := newTape(p, p.Placement.On(rank)...)
		for lap := range laps {
			begun := slices.DeleteFunc(slices.Clone(block), func(s lapStep) bool { return s.lap > lap })
			t.times(1, actions(begun)...)
		}
		t.times((p.Microbatches+group-1)/group, actions(block)...)
		programs[rank] = t.Program()
	}
	return p.plan(name, programs...), nil
}

// lapStep is a step of a group that runs so many laps after the group began.
type lapStep struct {
	lap  int
	step Action
}

// actions returns the steps as actions.
func actions(block []lapStep) []Action {
	list := make([]Action, len(block))
	for i, s := range block {
		list[i] = s.step
	}
	return list
}

// groupBlock returns what a rank runs in each lap, in order, and the laps that a
// group is on it beyond its first. A lap is three slots for each microbatch of a group
// and stage of a rank, and every lap begins a group. So each slot of a lap has one
// step, of a group that began some laps before.
func groupBlock(ranks, depth, group, rank int) (block []lapStep, laps int) {
	lap := 3 * group * depth
	block = make([]lapStep, lap)               // by slot
	apart := ((ranks+1)/2 + group - 1) / group // in groups, from one stage of the rank to the next
	turn := depth / gcd(depth, apart)          // stages after which a slot would be taken twice
	at := func(stage, member int) int { return 3 * (group*(apart*stage+stage/turn) + member) }

	lastF := at(depth-1, 0) + rank
	firstI := lastF + 3*(ranks-1-rank) + 1
	for k := range depth {
		forward, backward := k*ranks+rank, (depth-1-k)*ranks+rank
		for member := range group {
			f, i := rank+at(k, member), firstI+at(k, member)
			block[f%lap] = lapStep{f / lap, Act(F, forward, 0)}
			block[i%lap] = lapStep{i / lap, Act(I, backward, 0)}
			block[(i+1)%lap] = lapStep{(i + 1) / lap, Act(W, backward, 0)}
			laps = max(laps, (i+1)/lap)
		}
	}
	return block, laps
}

// gcd returns the greatest common divisor of two positive numbers.
func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
