package lower_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

func TestLifetimesOfGenerators(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := plantest.DrawParams(t)
		rule := schedule.DepthFirst
		if rapid.Bool().Draw(t, "breadth-first") {
			rule, params.Group = schedule.BreadthFirst, 0
		}
		p := plantest.Made(t, rule, params)
		split := make([]bool, p.Placement.Stages())
		require.True(t, ordered(p, split))
		plantest.CheckLifetimes(t, p, plantest.DrawFacts(t, p, split))
	})
}

func TestLifetimesOfPipelined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := plantest.DrawPipelined(t)
		require.Equal(t, ordered(p, split), check.Plan(p) == nil)
		facts := plantest.DrawFacts(t, p, split)
		if !ordered(p, split) {
			_, err := lower.Lifetimes(p, facts, plantest.Parts)
			require.ErrorIs(t, err, check.ErrInvalidPlan)
			return
		}
		if got := plantest.CheckLifetimes(t, p, facts); got != nil {
			require.LessOrEqual(t, len(got.Programs[0]), 64)
		}
	})
}

func TestLifetimesOfLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := plantest.DrawList(t)
		require.True(t, ordered(p, split))
		plantest.CheckLifetimes(t, p, plantest.DrawFacts(t, p, split))
	})
}

func TestLifetimesOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := plantest.DrawChunks(t)
		require.Equal(t, ordered(p, split), check.Plan(p) == nil)
		if ordered(p, split) {
			plantest.CheckLifetimes(t, p, plantest.DrawFacts(t, p, split))
		}
	})
}

// everyStage returns a slice that is true for every stage of the plan.
func everyStage(p *schedule.Plan) []bool { return slices.Repeat([]bool{true}, p.Placement.Stages()) }

// TestLifetimesOfLowered draws plans with transfers, several copies of a model, slices, and sharded weights.
func TestLifetimesOfLowered(t *testing.T) {
	testkit.Slow(t)
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ranks, depth := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 2).Draw(t, "depth")
				plans := variants(t, s, ranks, depth, rapid.IntRange(1, 14).Draw(t, "microbatches"))
				if len(plans) == 0 {
					return
				}
				p := lowered(t, rapid.SampledFrom(plans).Draw(t, "plan"), rapid.SampledFrom(capacities).Draw(t, "capacity"))
				if rapid.Bool().Draw(t, "sharded") {
					var err error
					p = sharded(t, p, 2)
					p, err = lower.Reduce(p, p.Microbatches%4)
					require.NoError(t, err)
				}
				plantest.CheckLifetimes(t, p, plantest.DrawFacts(t, p, everyStage(p)))
			})
		})
	}
}

func TestLifetimesOfDisorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := lowered(t, drawDisorder(t), rapid.SampledFrom(capacities).Draw(t, "capacity"))
		plantest.CheckLifetimes(t, p, plantest.DrawFacts(t, p, everyStage(p)))
	})
}

// In the steady state of 1F1B each rank has two or three messages in flight, regardless of the
// number of microbatches, and a microbatch retires soon after its backward.
func TestLifetimesOfOneFOneB(t *testing.T) {
	p := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 1_000_000})
	lowered := transferred(t, p, schedule.Unlimited)
	marked := withLifetimes(t, lowered, make([]schedule.StageInfo, 4), 0)
	require.Equal(t, []int{4, 3, 2, 1}, marked.StageWindows)
	require.Equal(t, []int{3, 3, 3, 2}, marked.SendWindows)
}

// Lifetimes rejects a plan with a send without a wait.
func TestLifetimesNeedWaits(t *testing.T) {
	p := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 3})
	lowered := transferred(t, p, schedule.Unlimited)
	for rank, list := range plantest.Lists(lowered) {
		list = slices.DeleteFunc(list, func(a schedule.Action) bool { return a.Kind() == schedule.WaitF || a.Kind() == schedule.WaitB })
		lowered.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
	}
	_, err := lower.Lifetimes(lowered, make([]schedule.StageInfo, 2), 0)
	require.ErrorIs(t, err, schedule.ErrStageInfo)
	require.ErrorContains(t, err, "rank 0 never waits for 0SEND_F2, so its buffer is never released: use a plan of Transfers")
}

// withLifetimes returns a plan with lifetimes.
func withLifetimes(t require.TestingT, plan *schedule.Plan, facts []schedule.StageInfo, parts int) *schedule.Plan {
	plan, err := lower.Lifetimes(plan, facts, parts)
	require.NoError(t, err)
	return plan
}
