package lower_test

import (
	"errors"
	"math/rand/v2"
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
