package runner_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

func TestStepComputesMeansAndGradients(t *testing.T) {
	nested := func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err != nil {
			return nil, err
		}
		return plantest.Nested(plan, rand.New(rand.NewPCG(1, 2))), nil
	}
	for _, rule := range []schedule.Rule{nil, schedule.BreadthFirst, nested} {
		for _, m := range []int{1, 2, 7, 64} {
			stages := chain()
			cfg := config(stages)
			cfg.Plan.Rule = rule
			r := newRunner(t, cfg)
			source := &counted{}
			result := runStep(t, r, m, source)
			require.Equal(t, m, source.asked)
			sum := float64(m*(m+1)) / 2 // of the numbers
			require.Equal(t, 30*sum/float64(m), result.Loss("loss"))
			require.Equal(t, []float64{15 * sum, 10 * sum, 6 * sum}, []float64{*stages[0].grad, *stages[1].grad, *stages[2].grad})
			factor, err := factorOf(result)
			require.NoError(t, err)
			require.Equal(t, 1/float64(m), factor)
			require.InEpsilon(t, math.Sqrt(15*15+10*10+6*6)*sum/float64(m), result.GradNorm, 1e-15)
			_, err = factorOf(result)
			require.ErrorIs(t, err, runner.ErrUpdated)
			require.Equal(t, loss.Stepped, result.Outcome)
			require.Equal(t, 6*m, result.Actions)
			require.EqualValues(t, 1, r.NextStep())
		}
	}
}

func TestMMayDifferFromStepToStep(t *testing.T) {
	r := newRunner(t, config(chain()))
	for i, m := range []int{3, 1, 100, 3} {
		result := runStep(t, r, m, &counted{})
		require.Equal(t, m, result.Microbatches)
		require.EqualValues(t, i, result.Step)
	}
	_, err := r.Step(t.Context(), 0, &counted{})
	require.ErrorContains(t, err, "0 microbatches")
	_, err = r.Step(t.Context(), 1, nil)
	require.ErrorContains(t, err, "source is nil")
}

func TestLookAheadPullsEarlierAndNeverMore(t *testing.T) {
	for _, ahead := range []int{0, 1, 3, 50} {
		cfg := config(chain())
		cfg.Plan.LookAhead = ahead
		source := &counted{}
		first := true
		cfg.Hooks.Action = func(_ int, a schedule.Action) {
			if a.Kind() == schedule.B && first {
				first = false
				require.Equal(t, min(1+ahead, 10), source.asked)
			}
		}
		_, err := newRunner(t, cfg).Step(t.Context(), 10, source)
		require.NoError(t, err)
		require.Equal(t, 10, source.asked)
	}
}

func TestEvaluateSavesNothingAndKeepsTheStep(t *testing.T) {
	stages := chain()
	cfg := config(stages)
	r := newRunner(t, cfg)
	result := evaluate(t, r, 4, &counted{})
	value := result.Loss("loss")
	require.Equal(t, 75.0, value)
	require.Equal(t, 12, result.Actions)
	require.True(t, math.IsNaN(*stages[0].grad), "no gradient is touched")
	require.Zero(t, r.NextStep())
	_, err := factorOf(result)
	require.ErrorIs(t, err, runner.ErrNoUpdate)
}

func TestOutcomes(t *testing.T) { // L10
	for name, tc := range map[string]struct {
		sum    func(float64, int) float64
		weight func(int) float64
		scale  int
		want   loss.Outcome
		first  int
	}{
		"empty":                    {weight: func(int) float64 { return 0 }, want: loss.Empty, first: -1},
		"not finite":               {sum: func(x float64, m int) float64 { return map[bool]float64{true: math.Inf(1), false: x}[m >= 2] }, want: loss.Skipped, first: 2},
		"weight too small":         {weight: func(int) float64 { return 5e-324 }, want: loss.Skipped, first: -1},
		"factor too small":         {weight: func(int) float64 { return 1e307 }, scale: 127, want: loss.OutOfRange, first: -1},
		"float32 too large for it": {weight: func(int) float64 { return 3e-45 }, want: loss.OutOfRange, first: -1},
		"0 in float32":             {weight: func(int) float64 { return 3e300 }, want: loss.OutOfRange, first: -1},
		"not normal in float32":    {weight: func(int) float64 { return 0x1p126 }, want: loss.OutOfRange, first: -1},
		"a power of two of seeds":  {weight: func(int) float64 { return 0x1p126 }, scale: -126, want: loss.Stepped, first: -1},
		"norm too large":           {weight: func(int) float64 { return 0x1p-125 }, scale: 0, want: loss.OutOfRange, first: -1},
		"some without":             {weight: func(m int) float64 { return float64(m % 2) }, want: loss.Stepped, first: -1},
	} {
		t.Run(name, func(t *testing.T) {
			chain := chain()
			chain[2].lossSum, chain[2].lossWeight = tc.sum, tc.weight
			cfg := config(chain)
			cfg.ScaleExponent = tc.scale
			result, err := newRunner(t, cfg).Step(t.Context(), 4, &counted{})
			require.NoError(t, err)
			require.Equal(t, tc.want, result.Outcome)
			require.Equal(t, tc.first, result.FirstNonFinite)
			_, err = factorOf(result)
			require.Equal(t, tc.want != loss.Stepped, errors.Is(err, runner.ErrNoUpdate))
			require.Equal(t, tc.want == loss.Skipped, errors.Is(err, runner.ErrSkipped))
			require.Equal(t, tc.want == loss.Empty, errors.Is(err, runner.ErrEmpty))
			require.Equal(t, tc.want == loss.OutOfRange, errors.Is(err, runner.ErrRange))
			require.Equal(t, !result.Losses[0].Present, math.IsNaN(result.Loss("loss")), "absent is absent, never 0 (L3)")
		})
	}
	t.Run("gradient not finite", func(t *testing.T) {
		chain := chain()
		chain[0].weight = math.Inf(1)
		chain[2].lossSum = func(float64, int) float64 { return 1 }
		result, err := newRunner(t, config(chain)).Step(t.Context(), 1, &counted{})
		require.NoError(t, err)
		require.Equal(t, loss.Skipped, result.Outcome)
	})
}

// TestUpdateIsOfTheLastStep calls Update of results after a later step has overwritten their gradients.
func TestUpdateIsOfTheLastStep(t *testing.T) { // L10
	r := newRunner(t, config(chain()))
	step := func() *runner.Result {
		return runStep(t, r, 2, &counted{})
	}
	refused := func(result *runner.Result) error {
		return result.Update(func(float64) error { t.Error("a stale update is applied"); return nil })
	}
	first := step()
	second := step()
	require.ErrorIs(t, refused(first), runner.ErrStaleResult, "from the first step on")
	require.ErrorContains(t, refused(first), "step 0")
	copied := *second
	evaluate(t, r, 1, &counted{})
	_, err := r.Step(t.Context(), 1, nil)
	require.ErrorContains(t, err, "source is nil")
	_, err = factorOf(second)
	require.NoError(t, err, "neither an evaluation nor a refused call touches gradients")
	require.ErrorIs(t, refused(&copied), runner.ErrUpdated)

	third := step()
	require.ErrorIs(t, refused(second), runner.ErrStaleResult)
	_, err = r.Step(t.Context(), 1, &counted{})
	require.ErrorIs(t, err, runner.ErrUnused)
	_, err = factorOf(third)
	require.NoError(t, err, "the refused step has not begun")

	_, err = r.Step(t.Context(), 3, &counted{ends: 2})
	require.ErrorIs(t, err, runner.ErrShortBatch)
	require.ErrorIs(t, refused(third), runner.ErrStaleResult)
	_, err = factorOf(step())
	require.NoError(t, err)
}

// TestUpdateLooksAtEveryGradient changes each of three gradients after a step.
func TestUpdateLooksAtEveryGradient(t *testing.T) {
	for i, name := range []string{`"a" of stage 0`, `"b" of stage 1`, `"c" of stage 2`} {
		chain := chain()
		result, err := newRunner(t, config(chain)).Step(t.Context(), 2, &counted{})
		require.NoError(t, err)
		*chain[i].grad *= 1.5
		_, err = factorOf(result)
		require.ErrorIs(t, err, runner.ErrOverwritten)
		require.ErrorContains(t, err, name)
	}
}

// TestStepAfterOverwrittenGradients goes on after Update has reported that the gradients cannot be used.
func TestStepAfterOverwrittenGradients(t *testing.T) { // L10
	chain := chain()
	r := newRunner(t, config(chain))
	_, err := factorOf(runStep(t, r, 2, &counted{}))
	require.NoError(t, err)
	result := runStep(t, r, 2, &counted{})
	*chain[0].grad *= 2
	_, err = factorOf(result)
	require.ErrorIs(t, err, runner.ErrOverwritten)
	next := runStep(t, r, 2, &counted{})
	_, err = factorOf(result)
	require.ErrorIs(t, err, runner.ErrStaleResult)
	_, err = r.Step(t.Context(), 2, &counted{})
	require.ErrorIs(t, err, runner.ErrUnused)
	_, err = factorOf(next)
	require.NoError(t, err)
}

// TestUpdateBehindAFailedStep has a result that was not updated before the next step failed.
func TestUpdateBehindAFailedStep(t *testing.T) { // L8, L10
	r := newRunner(t, config(chain()))
	result := runStep(t, r, 2, &counted{})
	_, err := r.Step(t.Context(), 3, &counted{ends: 2})
	require.ErrorIs(t, err, runner.ErrShortBatch)
	require.ErrorIs(t, result.Update(func(float64) error { return nil }), runner.ErrStaleResult)
}

func TestSeedsCarryAPowerOfTwo(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	cfg.ScaleExponent = 10
	result, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
	require.NoError(t, err)
	require.Equal(t, 1024.0*15*3, *chain[0].grad)
	factor, err := factorOf(result)
	require.NoError(t, err)
	require.Equal(t, 1.0/2048, factor)
	require.InEpsilon(t, math.Sqrt(15*15+10*10+6*6)*1.5, result.GradNorm, 1e-15)
}

func TestContributions(t *testing.T) { // L5
	chain := chain()
	chain[1].contributes = batchctx.Sometimes
	result, err := newRunner(t, config(chain)).Step(t.Context(), 3, &counted{})
	require.NoError(t, err)
	require.Equal(t, 10.0*(1+3), *chain[1].grad)
	require.Equal(t, loss.Stepped, result.Outcome)

	silent := []*times{chain[0], {name: "three", weight: 3, param: "b", grad: num(math.NaN())}, chain[2]}
	cfg := config(silent)
	cfg.Stages[1] = withoutGrad{silent[1]}
	_, err = newRunner(t, cfg).Step(t.Context(), 3, &counted{})
	require.ErrorIs(t, err, batchctx.ErrContribution)
	require.ErrorContains(t, err, `"b" of stage 1 (three): 0 of 3`)

	silent[1].contributes = batchctx.Sometimes
	_, err = newRunner(t, cfg).Step(t.Context(), 3, &counted{})
	require.NoError(t, err)
	require.Zero(t, *silent[1].grad, "a gradient that was not written is zero, not its old value")
}

type withoutGrad struct{ *times }

func (s withoutGrad) Backward(ctx context.Context, mb view, gradOut, gradIn []number) error {
	bare := *s.times
	bare.param = ""
	return bare.Backward(ctx, mb, gradOut, gradIn)
}

func TestTiedParametersAreAddedInStageOrder(t *testing.T) { // L9
	chain := chain()
	chain[2].param, chain[2].tied = "a", true
	result, err := newRunner(t, config(chain)).Step(t.Context(), 1, &counted{})
	require.NoError(t, err)
	require.Equal(t, 15.0+6, *chain[0].grad)
	require.InEpsilon(t, math.Sqrt(21*21+10*10), result.GradNorm, 1e-15, "each parameter once")
}

func TestFrozenStages(t *testing.T) {
	t.Run("prefix", func(t *testing.T) {
		chain := chain()
		wanted := true
		chain[1].gotGradIn = &wanted
		cfg := config(chain)
		cfg.Stages[0] = stages.Freeze(cfg.Stages[0])
		result, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
		require.NoError(t, err)
		require.False(t, wanted, "nothing before the first trained stage needs a gradient")
		require.True(t, math.IsNaN(*chain[0].grad))
		require.Equal(t, 10.0*3, *chain[1].grad)
		require.Equal(t, 5*2, result.Actions)
	})
	t.Run("middle", func(t *testing.T) {
		chain := chain()
		cfg := config(chain)
		cfg.Stages[1] = stages.Freeze(cfg.Stages[1])
		var kinds []schedule.Kind
		cfg.Hooks.Action = func(_ int, a schedule.Action) { kinds = append(kinds, a.Kind()) }
		_, err := newRunner(t, cfg).Step(t.Context(), 1, &counted{})
		require.NoError(t, err)
		require.Equal(t, []schedule.Kind{schedule.F, schedule.F, schedule.F, schedule.B, schedule.I, schedule.B}, kinds)
		require.Equal(t, 15.0, *chain[0].grad)
		require.True(t, math.IsNaN(*chain[1].grad))
	})
	t.Run("all", func(t *testing.T) {
		cfg := config(chain())
		for s := range cfg.Stages {
			cfg.Stages[s] = stages.Freeze(cfg.Stages[s])
		}
		_, err := newRunner(t, cfg).Step(t.Context(), 1, &counted{})
		require.Error(t, err)
	})
}

func TestBackwardMayBeSplit(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	for i := range chain {
		cfg.Stages[i] = &splitting{times: chain[i]}
	}
	cfg.Plan.Rule = split
	var last schedule.Kind
	cfg.Hooks.Action = func(_ int, a schedule.Action) { last = a.Kind() }
	result, err := newRunner(t, cfg).Step(t.Context(), 4, &counted{})
	require.NoError(t, err)
	require.Equal(t, schedule.W, last)
	require.Equal(t, 9*4, result.Actions)
	require.Equal(t, []float64{150, 100, 60}, []float64{*chain[0].grad, *chain[1].grad, *chain[2].grad})

	cfg.Stages[1] = chain[1] // it cannot split its backward, so B replaces its I and W
	result, err = newRunner(t, cfg).Step(t.Context(), 4, &counted{})
	require.NoError(t, err)
	require.Equal(t, 8*4, result.Actions)
	require.Equal(t, []float64{150, 100, 60}, []float64{*chain[0].grad, *chain[1].grad, *chain[2].grad})
}

func TestForwardsMayDescend(t *testing.T) {
	const m = 9
	descending := func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err != nil {
			return nil, err
		}
		mirrored := *plan
		var actions []schedule.Action
		for action := range plan.All(0) {
			actions = append(actions, schedule.NewAction(action.Kind(), action.Stage(), p.Microbatches-1-action.Microbatch()))
		}
		mirrored.Programs = [][]schedule.Segment{{{Body: actions, Repeat: 1}}}
		return &mirrored, nil
	}
	chain := chain()
	cfg := config(chain)
	cfg.Plan.Rule = descending
	source := &counted{}
	first := -1
	cfg.Hooks.Action = func(_ int, a schedule.Action) {
		if first < 0 {
			first = a.Microbatch()
		}
	}
	_, err := newRunner(t, cfg).Step(t.Context(), m, source)
	require.NoError(t, err)
	require.Equal(t, m-1, first)
	require.Equal(t, m, source.asked)
	require.Equal(t, 15.0*m*(m+1)/2, *chain[0].grad)
}

func TestSamplesAreKept(t *testing.T) {
	cfg := config(chain())
	cfg.Memory.Ring = 4
	cfg.FirstStep = 11
	var times []int64
	cfg.Hooks.Microbatch = func(s *memory.Sample) { times = append(times, s.Time) }
	r := newRunner(t, cfg)
	runStep(t, r, 6, &counted{})
	require.Len(t, times, 6)
	require.Positive(t, times[0])
	require.Equal(t, 4, r.Samples(0).Len())
	for i := range 4 {
		s := r.Samples(0).At(i)
		require.Equal(t, 2+i, s.Microbatch)
		require.EqualValues(t, 11, s.Step)
		require.Equal(t, "B", s.Kind)
		require.Equal(t, float64(3+i), s.Weight)
		require.Zero(t, s.Excess)
	}
}
