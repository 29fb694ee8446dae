package schedule_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// The orders that PyTorch's tests expect, test/distributed/pipelining/artifacts/
// zb1p_2rank_2stagep_compute.csv, with I instead of that file's B, and without empty cells.
var pyTorchZB1P = []string{
	"0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 0F4 2I3 2W3 0F5 0I2 0W2 2F4 0I3 0W3 2F5 " +
		"2I4 2W4 0F6 2I5 2W5 0F7 0I4 0W4 2F6 0I5 0W5 2F7 2I6 2W6 2I7 2W7 0I6 0W6 0I7 0W7",
	"1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1F4 1I2 3W3 1F5 1I3 1W2 3F4 3I4 1W3 " +
		"3F5 3I5 3W4 1F6 1I4 3W5 1F7 1I5 1W4 3F6 3I6 1W5 3F7 3I7 3W6 1I6 3W7 1I7 1W6 1W7",
}

func TestZB1PIsPyTorchs(t *testing.T) {
	plan := plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 8})
	require.Equal(t, pyTorchZB1P, spelled(plan))
}

// spelled returns the actions of each rank as PyTorch writes them, with overlapping pairs in brackets.
func spelled(p *schedule.Plan) (ranks []string) {
	for _, list := range plantest.Lists(p) {
		var b strings.Builder
		joined := false
		for i, a := range list {
			switch {
			case joined:
				b.WriteByte(';')
			case i > 0:
				b.WriteByte(' ')
			}
			if a.Joined() {
				b.WriteByte('(')
			}
			b.WriteString(a.WithJoin(false).String())
			if joined {
				b.WriteByte(')')
			}
			joined = a.Joined()
		}
		ranks = append(ranks, b.String())
	}
	return ranks
}

func TestZB1P(t *testing.T) {
	plan := plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 1_000_001})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 0F1 2F0\n"+
		"x 499999 +2: 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1\n"+
		"x 1 +0: 2F999999 2I999998 2W999998 0F1000000 2I999999 2W999999 0I999998 0W999998 2F1000000 0I999999\n"+
		"  0W999999 2I1000000 2W1000000 0I1000000 0W1000000\n"+
		"rank 1:\nx 1 +0: 1F0 1F1 3F0 3I0\n"+
		"x 499999 +2: 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1\n"+
		"x 1 +0: 3F999999 3I999999 3W999998 1F1000000 1I999998 3W999999 1I999999 1W999998 3F1000000 3I1000000\n"+
		"  1W999999 3W1000000 1I1000000 1W1000000", segmented(t, plan))

	plan = plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(4, 8), Microbatches: 10, Group: 5})
	require.Equal(t, "zb1p group=5", plan.Name)
}

func TestZB1PIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawLooped(t)
		if rapid.Bool().Draw(t, "groups") {
			p.Group = p.Placement.Ranks + rapid.IntRange(0, 12).Draw(t, "group")
		}
		requireRule(t, schedule.ZB1P, p, func(rank int) []schedule.Action { return zb1p(p, rank) })
	})
}

// zb1p returns the actions of a rank in PyTorch's order. If PyTorch does not accept the number of
// microbatches, zb1p uses the next number that fills the last group, without the additional microbatches.
func zb1p(p schedule.Params, rank int) (list []schedule.Action) {
	ranks, depth := p.Placement.Ranks, p.Placement.Stages()/p.Placement.Ranks
	group := max(p.Group, ranks)
	if p.Group > p.Microbatches {
		group = max(p.Microbatches, ranks)
	}
	padded := p.Microbatches
	if rest := padded % group; rest > 0 && rest < ranks {
		padded += group - rest
	}

	next := map[schedule.Action]int{} // by kind and stage: the next microbatch
	add := func(kind schedule.Kind, chunk int) {
		step := schedule.NewAction(kind, chunk*ranks+rank, 0)
		if next[step] < p.Microbatches {
			list = append(list, step.Shift(next[step]))
		}
		next[step]++
	}
	var chunks []int // by forward: its chunk
	for first := 0; first < padded; first += group {
		for chunk := range depth {
			chunks = append(chunks, slices.Repeat([]int{chunk}, min(group, padded-first))...)
		}
	}
	warmup := min((depth-1)*group+ranks-1-rank, len(chunks))
	for _, chunk := range chunks[:warmup] {
		add(schedule.F, chunk)
	}
	var waiting []int // the chunks of each I whose W has not run
	weight := func() {
		add(schedule.W, waiting[0])
		waiting = waiting[1:]
	}
	for op := range chunks {
		if warmup+op < len(chunks) {
			add(schedule.F, chunks[warmup+op])
		}
		add(schedule.I, depth-1-chunks[op])
		waiting = append(waiting, depth-1-chunks[op])
		if op >= rank {
			weight()
		}
	}
	for len(waiting) > 0 {
		weight()
	}
	return list
}

func TestZB1PWithOneStageIsZBH1(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for microbatches := 1; microbatches <= 3*ranks; microbatches++ {
			p := schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches}
			one := plantest.Made(t, schedule.ZBH1, p)
			other := plantest.Made(t, schedule.ZB1P, p)
			require.Equal(t, plantest.Lists(one), plantest.Lists(other))
		}
	}
}

// The published figures: P whole microbatches in flight on every rank, and a bubble of (P-1)(F+I-W)/V. The
// costs are those of a stage; a rank spends V times as much on a microbatch.
func TestZB1PFigures(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 5, 8, 16} {
		for depth := 1; depth <= 4; depth++ {
			microbatches := 3 * ranks
			plan := plantest.Made(t, schedule.ZB1P, schedule.Params{Placement: schedule.Looped(ranks, ranks*depth), Microbatches: microbatches})
			require.Equal(t, slices.Repeat([]int{ranks * depth}, ranks), inFlight(plan))
			for _, cost := range profiles {
				f, i, w := cost[0], cost[1], cost[2]
				makespan, _ := plantest.Clocks(t, plan, costs(cost))
				require.Equal(t, microbatches*depth*(f+i+w)+(ranks-1)*(f+i-w), makespan, "P=%d V=%d %v", ranks, depth, cost)
			}
		}
	}
}
