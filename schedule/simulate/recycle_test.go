package simulate_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/simulate"
)

// rerouted returns a step of three replicas of four ranks, with six microbatches each, in which rank 2 of
// replica 0 has failed. Its peers in the two other replicas each compute stage 2 of three of its
// microbatches. A rank runs a ready input gradient first, else a forward, else a weight gradient. A
// replica consists of two copies of the model with three microbatches each.
func rerouted(t *testing.T) *schedule.Plan {
	const ranks, lost, copies, each = 4, 2, 6, 3
	p := &schedule.Plan{Name: "rerouted", Microbatches: copies * each, Placement: schedule.Placement{Ranks: 3 * ranks, Copies: copies}, Programs: make([][]schedule.Segment, 3*ranks)}
	for c := range copies {
		for s := range ranks {
			replica := c / 2
			if replica == 0 && s == lost {
				replica = 1 + c%2
			}
			p.Placement.Rank = append(p.Placement.Rank, replica*ranks+s)
		}
	}
	done := map[schedule.Action]int{} // the time at which the action ends
	var left []schedule.Action
	for c := range copies {
		for s := range ranks {
			for mb := c * each; mb < (c+1)*each; mb++ {
				for _, kind := range []schedule.Kind{schedule.I, schedule.F, schedule.W} {
					left = append(left, schedule.NewAction(kind, c*ranks+s, mb))
				}
			}
		}
	}
	order := []schedule.Kind{schedule.I, schedule.F, schedule.W}
	slices.SortStableFunc(left, func(a, b schedule.Action) int {
		return slices.Index(order, a.Kind()) - slices.Index(order, b.Kind())
	})
	for now := 0; len(left) > 0; now++ {
		var busy [3 * ranks]bool
		for i := 0; i < len(left); i++ {
			a := left[i]
			stage, mb, rank := a.Stage(), a.Microbatch(), p.Placement.Rank[a.Stage()]
			needs := schedule.NewAction(schedule.I, stage, mb)
			switch s := stage % ranks; {
			case a.Kind() == schedule.F && s == 0:
				needs = 0
			case a.Kind() == schedule.F:
				needs = schedule.NewAction(schedule.F, stage-1, mb)
			case a.Kind() == schedule.I && s == ranks-1:
				needs = schedule.NewAction(schedule.F, stage, mb)
			case a.Kind() == schedule.I:
				needs = schedule.NewAction(schedule.I, stage+1, mb)
			}
			if end, ended := done[needs]; busy[rank] || needs != 0 && (!ended || end > now) {
				continue
			}
			busy[rank], done[a] = true, now+1
			if p.Programs[rank] == nil {
				p.Programs[rank] = []schedule.Segment{{Repeat: 1}}
			}
			p.Programs[rank][0].Body = append(p.Programs[rank][0].Body, a)
			left = slices.Delete(left, i, i+1)
			i--
		}
	}
	require.NoError(t, check.Plan(p))
	return p
}

// TestRerouted reproduces the example of ReCycle (SOSP 2024).
func TestRerouted(t *testing.T) {
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}
	report := func(p *schedule.Plan) *simulate.Report {
		return reportOf(t, p, costs, schedule.Unlimited)
	}
	oneFOneB := func(microbatches int) *schedule.Plan {
		p, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: microbatches})
		require.NoError(t, err)
		return p
	}
	require.EqualValues(t, 27, report(oneFOneB(6)).Makespan, "without a failed rank")
	require.EqualValues(t, 36, report(oneFOneB(9)).Makespan, "with all microbatches on two replicas")
	r := report(rerouted(t))
	require.EqualValues(t, 29, r.Makespan, "with a split backward in the bubbles")
	require.EqualValues(t, 27, r.Span, "if each rank updates its weights at its own end")
}
