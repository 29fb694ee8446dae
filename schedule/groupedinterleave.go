package schedule

// GroupedInterleave is the interleaved schedule from "PipeOffload". It needs less memory than
// Interleaved. Microbatches run in groups, through one stage of a rank after another, and all ranks
// keep the same pace: every rank runs an F, an I and a W in every three slots, and each W follows
// its I.
//
// With groups of P, the default, a rank has at most P microbatches in flight at all its stages; with
// Interleaved it has up to 3P/2. If a rank spends one unit of time on each of F, I and W of a
// microbatch, the makespan has a bubble of 2(P-1)/V units. Smaller groups, down to P/2, reduce the
// microbatches in flight, to as few as 3P/4 with two stages per rank, but ranks wait longer. Any group
// size works.
//
// Each rank has the same number of stages, looped, as for Interleaved. A last, smaller group runs
// in the order of a full group, without the missing microbatches. The size of the plan depends on the
// stages and the group, not on the number of microbatches. Errors wrap ErrParams.
func GroupedInterleave(p Params) (*Plan, error) {
	name, group, err := p.groups("grouped-interleave", 1)
	if err != nil {
		return nil, err
	}
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	return p.counted(name, func(b *countingBuilder, rank int) {
		block, periods := groupBlock(ranks, stages/ranks, group, rank)
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
	}), nil
}

// blockAction is an action of a group, and the number of periods from the group's beginning to the action.
type blockAction struct {
	period int
	action Action
}

// groupBlock returns the actions of a rank in each period, in order. It also returns the number of periods for which a
// group continues to run on the rank after its first period. A period has three slots for each microbatch of a group at
// each stage of the rank, and a new group begins in every period. Thus each slot of a period holds one action, which
// belongs to the new group or to an earlier one.
func groupBlock(ranks, depth, group, rank int) (block []blockAction, periods int) {
	period := 3 * group * depth
	block = make([]blockAction, period)        // by slot
	apart := ((ranks+1)/2 + group - 1) / group // the distance in groups between consecutive stages of the rank
	turn := depth / gcd(depth, apart)          // the number of stages after which a slot would be taken twice
	at := func(stage, member int) int { return 3 * (group*(apart*stage+stage/turn) + member) }

	lastF := at(depth-1, 0) + rank
	firstI := lastF + 3*(ranks-1-rank) + 1
	for k := range depth {
		forward, backward := k*ranks+rank, (depth-1-k)*ranks+rank
		for member := range group {
			f, i := rank+at(k, member), firstI+at(k, member)
			block[f%period] = blockAction{f / period, NewAction(F, forward, 0)}
			block[i%period] = blockAction{i / period, NewAction(I, backward, 0)}
			block[(i+1)%period] = blockAction{(i + 1) / period, NewAction(W, backward, 0)}
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
