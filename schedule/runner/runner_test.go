package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// number is a handle of the tests: one float64 that the garbage collector owns.
type number = *float64

type view = batchctx.Microbatch[number]

func num(v float64) number { return &v }

// calculator does step-end arithmetic on numbers.
type calculator struct{}

func (calculator) Zero(g number) error                  { *g = 0; return nil }
func (calculator) Add(dst, src number) error            { *dst += *src; return nil }
func (calculator) SumSquares(g number) (float64, error) { return *g * *g, nil }

var wire = []stages.Port{{Name: "x"}}

// times is a stage that multiplies by a weight. Its parts are those of the chain
// that it stands in.
type times struct {
	name        string
	first, last bool
	weight      float64
	param       string
	contributes batchctx.Contribution
	grad        number
	lossSum     func(x float64, m int) float64
	lossWeight  func(m int) float64
	gotGradIn   *bool
}

func (s *times) Spec() stages.Spec {
	spec := stages.Spec{Name: s.name, Slots: 1}
	if s.first {
		spec.Reads = []stages.Read{{Part: "x"}}
	} else {
		spec.Inputs = wire
	}
	if s.last {
		spec.Losses = []string{"loss"}
	} else {
		spec.Outputs = wire
	}
	return spec
}

func (s *times) Params() []batchctx.Param[number] {
	if s.param == "" {
		return nil
	}
	return []batchctx.Param[number]{{Name: s.param, Grad: s.grad, Contributes: s.contributes}}
}

func (s *times) Forward(_ context.Context, mb *view, in, out []number) error {
	var x number
	var err error
	if s.first {
		if x, err = mb.Part(0); err != nil {
			return err
		}
	} else {
		x = in[0]
	}
	if err := mb.Save(0, batchctx.ByBackward, mb.Retain(x)); err != nil {
		return err
	}
	if !s.last {
		out[0] = num(s.weight * *x)
		return nil
	}
	sum, weight := s.weight**x, 1.0
	if s.lossSum != nil {
		sum = s.lossSum(sum, mb.Index())
	}
	if s.lossWeight != nil {
		weight = s.lossWeight(mb.Index())
	}
	return mb.Loss(0, sum, weight)
}

func (s *times) Backward(_ context.Context, mb *view, gradOut, gradIn []number) error {
	x, err := mb.Take(0)
	if err != nil {
		return err
	}
	if s.gotGradIn != nil {
		*s.gotGradIn = gradIn != nil
	}
	dy := 0.0
	if s.last {
		seed, err := mb.LossSeed(0)
		if err != nil {
			return err
		}
		dy = float64(seed)
	} else {
		dy = *gradOut[0]
	}
	if s.param != "" && !(s.contributes == batchctx.Sometimes && mb.Index()%2 == 1) {
		g, write, err := mb.Grad(0)
		if err != nil {
			return err
		}
		switch write {
		case batchctx.First:
			*g = *x * dy
		case batchctx.Add:
			*g += *x * dy
		}
	}
	if gradIn != nil {
		gradIn[0] = num(s.weight * dy)
	}
	return nil
}

// chain is three stages 2·3·5 with one parameter each.
func chain() []*times {
	return []*times{
		{name: "two", first: true, weight: 2, param: "a", grad: num(math.NaN())},
		{name: "three", weight: 3, param: "b", grad: num(math.NaN())},
		{name: "five", last: true, weight: 5, param: "c", grad: num(math.NaN())},
	}
}

func config(chain []*times) runner.Config[number] {
	cfg := runner.Config[number]{
		Space:     memory.NewCollected[number](nil, func(number) int64 { return 8 }),
		Parts:     []string{"x"},
		Losses:    []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
		Gradients: calculator{},
	}
	for _, s := range chain {
		cfg.Stages = append(cfg.Stages, s)
	}
	return cfg
}

// counted is a source of the numbers 1, 2, 3, ... that counts what it is asked for.
type counted struct{ asked, ends int }

func (c *counted) Next(_ context.Context, e *batchctx.Entry[number]) error {
	if c.ends > 0 && c.asked == c.ends {
		return io.EOF
	}
	if e.Microbatch() != c.asked {
		return fmt.Errorf("asked for microbatch %d after %d", e.Microbatch(), c.asked)
	}
	c.asked++
	return e.Put(0, num(float64(c.asked)))
}

func newRunner(t *testing.T, cfg runner.Config[number]) *runner.Runner[number] {
	t.Helper()
	r, err := runner.New(cfg)
	require.NoError(t, err)
	return r
}

func TestStepComputesMeansAndGradients(t *testing.T) {
	for _, rule := range []schedule.Rule{nil, schedule.BreadthFirst} {
		for _, m := range []int{1, 2, 7, 64} {
			stages := chain()
			cfg := config(stages)
			cfg.Plan = rule
			r := newRunner(t, cfg)
			source := &counted{}
			result, err := r.Step(t.Context(), m, source)
			require.NoError(t, err)
			require.Equal(t, m, source.asked)
			sum := float64(m*(m+1)) / 2 // of the numbers
			value, ok := result.Loss("loss")
			require.True(t, ok)
			require.Equal(t, 30*sum/float64(m), value)
			require.Equal(t, []float64{15 * sum, 10 * sum, 6 * sum}, []float64{*stages[0].grad, *stages[1].grad, *stages[2].grad})
			factor, err := result.Factor()
			require.NoError(t, err)
			require.Equal(t, 1/float64(m), factor)
			require.InEpsilon(t, math.Sqrt(15*15+10*10+6*6)*sum/float64(m), result.GradNorm, 1e-15)
			_, err = result.Factor()
			require.ErrorIs(t, err, runner.ErrFactorTaken)
			require.Equal(t, loss.Stepped, result.Outcome)
			require.Equal(t, 6*m, result.Actions)
			require.EqualValues(t, 1, r.NextStep())
		}
	}
}

func TestMMayDifferFromStepToStep(t *testing.T) {
	r := newRunner(t, config(chain()))
	for i, m := range []int{3, 1, 100, 3} {
		result, err := r.Step(t.Context(), m, &counted{})
		require.NoError(t, err)
		require.Equal(t, m, result.Microbatches)
		require.EqualValues(t, i, result.Step)
	}
	_, err := r.Step(t.Context(), 0, &counted{})
	require.ErrorContains(t, err, "0 microbatches")
	_, err = r.Step(t.Context(), 1, nil)
	require.ErrorContains(t, err, "source is nil")
}

func TestShortBatch(t *testing.T) {
	cfg := config(chain())
	cfg.LookAhead = 2
	r := newRunner(t, cfg)
	_, err := r.Step(t.Context(), 8, &counted{ends: 5})
	require.ErrorIs(t, err, runner.ErrShortBatch)
	require.ErrorContains(t, err, "5 of 8 microbatches")
	result, err := r.Step(t.Context(), 5, &counted{ends: 5})
	require.NoError(t, err, "asked for exactly M")
	require.EqualValues(t, 0, result.Step, "a failed step does not count")
}

func TestLookAheadPullsEarlierAndNeverMore(t *testing.T) {
	for _, ahead := range []int{0, 1, 3, 50} {
		cfg := config(chain())
		cfg.LookAhead = ahead
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
	result, err := r.Evaluate(t.Context(), 4, &counted{})
	require.NoError(t, err)
	value, _ := result.Loss("loss")
	require.Equal(t, 75.0, value)
	require.Equal(t, 12, result.Actions)
	require.True(t, math.IsNaN(*stages[0].grad), "no gradient is touched")
	require.Zero(t, r.NextStep())
	_, err = result.Factor()
	require.ErrorIs(t, err, runner.ErrNoUpdate)
}

func TestOutputsGoToTheSink(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	cfg.Stages = cfg.Stages[:2] // the last one returns a number now
	cfg.Losses = nil
	got := map[int]float64{}
	space := cfg.Space
	cfg.Outputs = func(m int, out []number) error {
		got[m] = *out[0]
		_, err := space.Release(out[0])
		return err
	}
	r := newRunner(t, cfg)
	_, err := r.Evaluate(t.Context(), 3, &counted{})
	require.NoError(t, err)
	require.Equal(t, map[int]float64{0: 6, 1: 12, 2: 18}, got)
}

func TestOutcomes(t *testing.T) { // L10
	for name, tc := range map[string]struct {
		sum    func(float64, int) float64
		weight func(int) float64
		want   loss.Outcome
		first  int
	}{
		"empty":            {weight: func(int) float64 { return 0 }, want: loss.Empty, first: -1},
		"not finite":       {sum: func(x float64, m int) float64 { return map[bool]float64{true: math.Inf(1), false: x}[m >= 2] }, want: loss.Skipped, first: 2},
		"weight too small": {weight: func(int) float64 { return 5e-324 }, want: loss.Skipped, first: -1},
		"some without":     {weight: func(m int) float64 { return float64(m % 2) }, want: loss.Stepped, first: -1},
	} {
		t.Run(name, func(t *testing.T) {
			chain := chain()
			chain[2].lossSum, chain[2].lossWeight = tc.sum, tc.weight
			result, err := newRunner(t, config(chain)).Step(t.Context(), 4, &counted{})
			require.NoError(t, err)
			require.Equal(t, tc.want, result.Outcome)
			require.Equal(t, tc.first, result.FirstNonFinite)
			_, err = result.Factor()
			require.Equal(t, tc.want != loss.Stepped, errors.Is(err, runner.ErrNoUpdate))
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

func TestSeedsCarryAPowerOfTwo(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	cfg.ScaleExponent = 10
	result, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
	require.NoError(t, err)
	require.Equal(t, 1024.0*15*3, *chain[0].grad)
	factor, err := result.Factor()
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
	require.Zero(t, *silent[1].grad, "what was never written is zero, not what stood there")
}

// withoutGrad never contributes.
type withoutGrad struct{ *times }

func (s withoutGrad) Backward(ctx context.Context, mb *view, gradOut, gradIn []number) error {
	bare := *s.times
	bare.param = ""
	return bare.Backward(ctx, mb, gradOut, gradIn)
}

func TestTiedParametersAreAddedInStageOrder(t *testing.T) { // L9
	chain := chain()
	chain[2].param = "a"
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

// splitting is a stage that can run I and W apart, and keeps every view it gets.
type splitting struct {
	*times
	kept []*view
}

func (s *splitting) Forward(ctx context.Context, mb *view, in, out []number) error {
	s.kept = append(s.kept, mb)
	return s.times.Forward(ctx, mb, in, out)
}

func (s *splitting) Backward(ctx context.Context, mb *view, gradOut, gradIn []number) error {
	s.kept = append(s.kept, mb)
	return s.times.Backward(ctx, mb, gradOut, gradIn)
}

func (s *splitting) BackwardInput(_ context.Context, mb *view, gradOut, gradIn []number) error {
	s.kept = append(s.kept, mb)
	x, err := mb.Take(0)
	if err != nil {
		return err
	}
	dy := 1.0
	if gradOut != nil {
		dy = *gradOut[0]
	}
	if gradIn != nil {
		gradIn[0] = num(s.weight * dy)
	}
	return mb.Save(1, batchctx.ByWeight, num(*x*dy))
}

func (s *splitting) BackwardWeight(_ context.Context, mb *view) error {
	s.kept = append(s.kept, mb)
	dw, err := mb.Take(1)
	if err != nil {
		return err
	}
	g, write, err := mb.Grad(0)
	if write == batchctx.First {
		*g = 0
	}
	*g += *dw
	return err
}

func (s *splitting) Spec() stages.Spec {
	spec := s.times.Spec()
	spec.Slots = 2
	return spec
}

// split makes I and W of every B, the W's at the end of the step.
func split(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.DepthFirst(p)
	if err != nil {
		return nil, err
	}
	apart := *plan
	var actions, weights []schedule.Action
	for action := range plan.All(0) {
		if action.Kind() == schedule.B {
			weights = append(weights, schedule.Act(schedule.W, action.Stage(), action.Microbatch()))
			action = schedule.Act(schedule.I, action.Stage(), action.Microbatch())
		}
		actions = append(actions, action)
	}
	apart.Programs = [][]schedule.Segment{{{Body: append(actions, weights...), Repeat: 1}}}
	return &apart, nil
}

func TestBackwardMayBeSplit(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	for i := range chain {
		cfg.Stages[i] = &splitting{times: chain[i]}
	}
	cfg.Plan = split
	var last schedule.Kind
	cfg.Hooks.Action = func(_ int, a schedule.Action) { last = a.Kind() }
	result, err := newRunner(t, cfg).Step(t.Context(), 4, &counted{})
	require.NoError(t, err)
	require.Equal(t, schedule.W, last)
	require.Equal(t, 9*4, result.Actions)
	require.Equal(t, []float64{150, 100, 60}, []float64{*chain[0].grad, *chain[1].grad, *chain[2].grad})

	cfg.Stages[1] = chain[1]
	_, err = newRunner(t, cfg).Step(t.Context(), 4, &counted{})
	require.ErrorIs(t, err, schedule.ErrInvalidPlan)
	require.ErrorContains(t, err, "1I0 must not be in this plan: the stage does not split its backward")
}

// TestViewsEndWithTheirCall asks every view that a stage has kept, between the
// actions.
func TestViewsEndWithTheirCall(t *testing.T) {
	for name, rule := range map[string]schedule.Rule{"B": schedule.DepthFirst, "I and W": split} {
		t.Run(name, func(t *testing.T) {
			chain := chain()
			cfg := config(chain)
			cfg.Plan = rule
			var all []*splitting
			for i := range chain {
				all = append(all, &splitting{times: chain[i]})
				cfg.Stages[i] = all[i]
			}
			asked := 0
			ask := func() {
				for _, s := range all {
					for _, kept := range s.kept {
						asked++
						_, err := kept.Take(0)
						require.ErrorIs(t, err, batchctx.ErrEnded)
					}
				}
			}
			cfg.Hooks.Action = func(int, schedule.Action) { ask() }
			_, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
			require.NoError(t, err)
			ask()
			require.Positive(t, asked)
		})
	}
}

func TestTrainingNeedsAnObjective(t *testing.T) { // L10
	chain := chain()
	cfg := config(chain)
	cfg.Losses = []loss.Def{{Name: "loss", Reduction: loss.Mean}}
	r := newRunner(t, cfg)
	_, err := r.Step(t.Context(), 1, &counted{})
	require.ErrorIs(t, err, runner.ErrNoObjective)
	_, err = r.Evaluate(t.Context(), 1, &counted{})
	require.NoError(t, err)
	for _, s := range chain {
		s.param = ""
	}
	result, err := newRunner(t, cfg).Step(t.Context(), 1, &counted{})
	require.NoError(t, err, "where nothing trains there is nothing to divide")
	require.Equal(t, loss.Stepped, result.Outcome)
	_, err = result.Factor()
	require.ErrorIs(t, err, runner.ErrNoUpdate)
}

// TestForwardsMayDescend runs a rule whose first stage takes microbatches from
// the last to the first: entries wait, pulled in ascending order all the same.
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
			actions = append(actions, schedule.Act(action.Kind(), action.Stage(), p.Microbatches-1-action.Microbatch()))
		}
		mirrored.Programs = [][]schedule.Segment{{{Body: actions, Repeat: 1}}}
		return &mirrored, nil
	}
	chain := chain()
	cfg := config(chain)
	cfg.Plan = descending
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

func TestCancelEndsBetweenActions(t *testing.T) { // L8
	cfg := config(chain())
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	seen := 0
	cfg.Hooks.Action = func(int, schedule.Action) {
		if seen++; seen == 5 {
			cancel(cause)
		}
	}
	r := newRunner(t, cfg)
	_, err := r.Step(ctx, 8, &counted{})
	require.ErrorIs(t, err, cause)
	require.Equal(t, 5, seen, "the action under way is the last one")
	var where *runner.Error
	require.True(t, errors.As(err, &where))
	require.Equal(t, "two", where.Name)
	require.Equal(t, schedule.Act(schedule.B, 0, 0), where.Action.WithDrop(0))
	_, err = r.Step(t.Context(), 8, &counted{})
	require.NoError(t, err)
}

func TestPanicsGoThrough(t *testing.T) { // L8
	chain := chain()
	chain[1].lossSum = nil
	cfg := config(chain)
	explode := true
	cfg.Stages[1] = exploding{chain[1], &explode}
	r := newRunner(t, cfg)
	require.PanicsWithValue(t, "boom", func() { _, _ = r.Step(t.Context(), 2, &counted{}) })
	explode = false
	_, err := r.Step(t.Context(), 2, &counted{})
	require.NoError(t, err)
}

type exploding struct {
	*times
	now *bool
}

func (s exploding) Backward(ctx context.Context, mb *view, gradOut, gradIn []number) error {
	if *s.now {
		panic("boom")
	}
	return s.times.Backward(ctx, mb, gradOut, gradIn)
}

func TestOneStepAtATime(t *testing.T) {
	cfg := config(chain())
	var r *runner.Runner[number]
	cfg.Hooks.Action = func(int, schedule.Action) {
		_, err := r.Step(t.Context(), 1, &counted{})
		require.ErrorIs(t, err, runner.ErrBusy)
		require.ErrorIs(t, r.Close(), runner.ErrBusy)
	}
	r = newRunner(t, cfg)
	_, err := r.Step(t.Context(), 1, &counted{})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	_, err = r.Step(t.Context(), 1, &counted{})
	require.ErrorIs(t, err, runner.ErrClosed)
}

func TestSamplesAreKept(t *testing.T) {
	cfg := config(chain())
	cfg.Ring = 4
	cfg.FirstStep = 11
	var times []int64
	cfg.Hooks.Microbatch = func(s *memory.Sample) { times = append(times, s.Time) }
	r := newRunner(t, cfg)
	_, err := r.Step(t.Context(), 6, &counted{})
	require.NoError(t, err)
	require.Len(t, times, 6)
	require.Positive(t, times[0])
	require.Equal(t, 4, r.Samples().Len())
	for i := range 4 {
		s := r.Samples().At(i)
		require.Equal(t, 2+i, s.Microbatch)
		require.EqualValues(t, 11, s.Step)
		require.Equal(t, "B", s.Kind)
		require.Equal(t, float64(3+i), s.Weight)
		require.Zero(t, s.Excess)
	}
}

func TestMergeIsCalledOnce(t *testing.T) {
	cfg := config(chain())
	calls := 0
	var other loss.Record
	cfg.Merge = func(_ context.Context, record *loss.Record) error {
		calls++
		if calls == 1 {
			data, err := record.AppendBinary(nil)
			require.NoError(t, err)
			require.NoError(t, other.UnmarshalBinary(data))
			return nil
		}
		return record.Merge(&other) // the rank of the step before
	}
	r := newRunner(t, cfg)
	_, err := r.Step(t.Context(), 2, &counted{})
	require.NoError(t, err)
	result, err := r.Step(t.Context(), 4, &counted{})
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	value, _ := result.Loss("loss")
	require.Equal(t, 30*(3.0+10)/6, value)
}

func TestValidateReportsEveryFault(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	cfg.Space, cfg.Gradients, cfg.Losses, cfg.Parts = nil, nil, nil, nil
	cfg.LookAhead, cfg.Ring, cfg.ScaleExponent = -1, -1, 1000
	cfg.Stages[0], cfg.Stages[1] = cfg.Stages[1], nil
	_, err := runner.New(cfg)
	for _, want := range []string{
		"Space is nil", "LookAhead is -1", "Ring is -1", "ScaleExponent is 1000", "stage 1 is nil",
		`trains "b" and Gradients is nil`, `records loss "loss"`, "takes 1 inputs",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = runner.New(runner.Config[number]{Space: config(nil).Space})
	require.ErrorContains(t, err, "no stages")

	cfg = config(chain)
	cfg.Stages[1] = halfFrozen{cfg.Stages[1].(*times)}
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, `is frozen and its parameter "b" is not`)

	cfg = config(chain)
	cfg.Stages = append(cfg.Stages[:1], cfg.Stages[2:]...)
	cfg.Stages[1] = &stages.Func[number]{Declares: stages.Spec{Name: "odd", Inputs: []stages.Port{{Name: "y"}}}}
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, `output 0 of "two"`)
}

// halfFrozen declares itself frozen and keeps its parameter.
type halfFrozen struct{ *times }

func (s halfFrozen) Spec() stages.Spec {
	spec := s.times.Spec()
	spec.Frozen = true
	return spec
}
