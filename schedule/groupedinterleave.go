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
// With groups of P, the default, a rank has P microbatches in flight at most, and Interleaved up to
// half as many again. If F, I and W take equally long the
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
		block, periods := groupBlock(ranks, stages/ranks, group, rank)
		b := newCountingBuilder(p, p.Placement.On(rank)...)
		pattern := func(begun int) (list []Action) {
			for _, a := range block {
				if a.period <= begun {
					list = append(list, a.action)
				}
			}
			return list
		}
		for period := range periods {
			b.write(1, pattern(period)...)
		}
		b.write((p.Microbatches+group-1)/group, pattern(periods)...)
		programs[rank] = b.Program()
	}
	return p.plan(name, programs...), nil
}

// blockAction is an action of a group so many periods after the group began.
type blockAction struct {
	period int
	action Action
}

// groupBlock returns the actions of a rank in each period, in order, and how many periods a
// group lasts there beyond its first one. A period has three slots for each microbatch of a
// group and stage of a rank, and every period begins a group. So each slot of a period has one
// action, of a group that began some periods before.
func groupBlock(ranks, depth, group, rank int) (block []blockAction, periods int) {
	period := 3 * group * depth
	block = make([]blockAction, period)        // by slot
	apart := ((ranks+1)/2 + group - 1) / group // in groups, from one stage of the rank to the next
	turn := depth / gcd(depth, apart)          // stages after which a slot would be taken twice
	at := func(stage, member int) int { return 3 * (group*(apart*stage+stage/turn) + member) }

	lastF := at(depth-1, 0) + rank
	firstI := lastF + 3*(ranks-1-rank) + 1
	for k := range depth {
		forward, backward := k*ranks+rank, (depth-1-k)*ranks+rank
		for member := range group {
			f, i := rank+at(k, member), firstI+at(k, member)
			block[f%period] = blockAction{f / period, Act(F, forward, 0)}
			block[i%period] = blockAction{i / period, Act(I, backward, 0)}
			block[(i+1)%period] = blockAction{(i + 1) / period, Act(W, backward, 0)}
			periods = max(periods, (i+1)/period)
		}
	}
	return block, periods
}

// gcd returns the greatest common divisor of two positive numbers.
func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
