package plantest

import (
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// Clocks runs a plan without transfers, each action as soon as its inputs are available. It returns the
// makespan and the span, which is the longest time from the first to the last action of a rank. A
// joined pair starts when both actions can start and takes the sum of their times. Its results are
// available at its end.
func Clocks(t require.TestingT, p *schedule.Plan, cost func(schedule.Action) int) (makespan, span int) {
	done := map[schedule.Action]int{}
	backward := func(stage, mb int) schedule.Action {
		i := schedule.Act(schedule.I, stage, mb)
		if _, ok := done[i]; ok {
			return i
		}
		return schedule.Act(schedule.B, stage, mb)
	}
	ranks, rest := len(p.Programs), Lists(p)
	first, last := make([]int, ranks), make([]int, ranks)
	for progress := true; progress; {
		progress = false
		for rank := range ranks {
			for len(rest[rank]) > 0 {
				n := 1
				if rest[rank][0].Joined() {
					n = 2
				}
				group := rest[rank][:n]
				start, took, ready := last[rank], 0, true
				for _, a := range group {
					took += cost(a)
					for _, need := range Needs(p, a, backward) {
						at, ok := done[need]
						start, ready = max(start, at), ready && ok
					}
				}
				if !ready {
					break
				}
				if last[rank] == 0 {
					first[rank] = start
				}
				last[rank] = start + took
				for _, a := range group {
					done[a.WithJoin(false)] = last[rank]
				}
				rest[rank] = rest[rank][n:]
				progress = true
			}
		}
	}
	for rank := range ranks {
		require.Empty(t, rest[rank], "%s: rank %d waits", p.Name, rank)
		makespan, span = max(makespan, last[rank]), max(span, last[rank]-first[rank])
	}
	return makespan, span
}
