package lower_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestPrepareRefusesExactlyWhatIsInvalid changes valid plans in one place. Prepare rejects the
// invalid plans with the faults of the given plan, and returns a proved plan for the others.
func TestPrepareRefusesExactlyWhatIsInvalid(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 0))
	prepared := 0
	for range 2000 {
		p, _ := plantest.Grow(rng, plantest.DrawFeatures(rng))
		facts := make([]schedule.StageInfo, p.Placement.Stages())
		for stage := range facts {
			facts[stage] = schedule.StageInfo{Split: true, Frozen: p.IsFrozen(stage)}
			facts[stage].Reads[schedule.F] = 1
		}
		q := plantest.Mutate(p, rng)
		ready, err := lower.Prepare(q, lower.Passes{StageInfo: facts, Parts: 1, Capacity: schedule.Unlimited})
		if invalid := check.Plan(q); invalid != nil {
			require.Equal(t, invalid, err, "seed %d\n%s", plantest.Seed(), plantest.Text(t, q))
			continue
		}
		if errors.Is(err, schedule.ErrStageInfo) {
			require.ErrorContains(t, err, "never waits for") // valid, but a buffer would never be released
			continue
		}
		require.NoError(t, err, "seed %d\n%s", plantest.Seed(), plantest.Text(t, q))
		require.NoError(t, check.Plan(ready))
		require.Equal(t, facts, ready.StageInfo)
		prepared++
	}
	require.Greater(t, prepared, 100)
}

// TestPrepareRunsEveryPass compares Prepare with the passes called one after another.
func TestPrepareRunsEveryPass(t *testing.T) {
	facts := []schedule.StageInfo{{Split: true, Quantizes: true}, {Quantizes: true}}
	plan, err := schedule.ZBH1(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 12})
	require.NoError(t, err)
	ready, err := lower.Prepare(plan, lower.Passes{StageInfo: facts, Gathered: 1, Quantizing: lower.AtStart, Reduce: true, Capacity: 1})
	require.NoError(t, err)

	by, err := lower.Unsplit(plan, []bool{false, true})
	require.NoError(t, err)
	by = sharded(t, by, 1)
	by = quantized(t, by, facts, lower.AtStart)
	by, err = lower.Reduce(by, 0)
	require.NoError(t, err)
	by = transferred(t, by, 1)
	by = withLifetimes(t, by, facts, 0)
	require.Equal(t, plantest.Text(t, by), plantest.Text(t, ready))

	_, err = lower.Prepare(plan, lower.Passes{StageInfo: facts[:1]})
	require.ErrorIs(t, err, schedule.ErrStageInfo)
}

// TestRuleFromPlanOfOtherNumbers requests other numbers of microbatches from the plan of every schedule.
// RuleFromPlan rejects the number or returns a valid plan. If the steady state of a schedule is one loop, the plan
// equals the plan of its rule.
func TestRuleFromPlanOfOtherNumbers(t *testing.T) {
	const m = 64
	served := map[string]int{}
	for _, s := range schedule.Schedules() {
		place, err := s.Place(4, 4*s.PerRank)
		require.NoError(t, err)
		of := func(m int) *schedule.Plan {
			return plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: m})
		}
		lowered := transferred(t, of(m), 1)
		offloaded, err := lower.Offload(of(m), slices.Repeat([]uint64{1}, place.Stages()), 1)
		require.NoError(t, err)
		for name, plan := range map[string]*schedule.Plan{s.Name: of(m), s.Name + ", lowered": lowered, s.Name + ", offloaded": offloaded} {
			rule := lower.RuleFromPlan(plan)
			for _, other := range []int{m, 1, 5, 63, 65, 72, 1000} {
				got, err := rule(schedule.Params{Placement: place, Microbatches: other})
				if other == m {
					require.NoError(t, err)
					require.Equal(t, plantest.Lists(plan), plantest.Lists(got))
				}
				if err != nil {
					require.ErrorIs(t, err, schedule.ErrParams)
					require.ErrorContains(t, err, fmt.Sprintf("is for 64 microbatches, and its loops cannot be repeated to fit %d", other))
					continue
				}
				served[name]++
				require.NoError(t, check.Plan(got))
				require.Equal(t, other, got.Microbatches)
				if s.Name == "gpipe" || s.Name == "1f1b" && other > 8 {
					want := plantest.Lists(of(other))
					require.Equal(t, want, plantest.Lists(lower.WithoutOffload(lower.Computations(got))), "%s at %d", name, other)
				}
			}
		}
	}
	for _, name := range []string{"gpipe", "1f1b", "zb-h1", "interleaved", "1f1b, lowered", "1f1b, offloaded"} {
		require.Greater(t, served[name], 1, name)
	}
}

func TestRuleFromPlanRefuses(t *testing.T) {
	place := schedule.Looped(2, 2)
	plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: place, Microbatches: 3})
	for _, p := range []schedule.Params{{Cap: 1}, {Group: 2}, {Slices: 2}, {Microbatches: 0}} {
		p.Placement = place
		_, err := lower.RuleFromPlan(plan)(p)
		require.ErrorIs(t, err, schedule.ErrParams)
	}
	split := place
	split.Copies = 2
	two := *plan
	two.Placement = split
	_, err := lower.RuleFromPlan(&two)(schedule.Params{Placement: split, Microbatches: 3, Mode: schedule.ForwardOnly})
	require.ErrorIs(t, err, schedule.ErrParams)
}
