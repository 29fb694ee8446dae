package runner_test

import (
	"context"
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

// number is the tests' handle: one float64 that the garbage collector owns.
type number = *float64

type view = batchctx.Microbatch[number]

func num(v float64) number { return &v }

// calculator implements Gradients for numbers.
type calculator struct{}

func (calculator) Zero(g number) error                  { *g = 0; return nil }
func (calculator) Add(dst, src number) error            { *dst += *src; return nil }
func (calculator) SumSquares(g number) (float64, error) { return *g * *g, nil }

var wire = []stages.Port{{Name: "x"}}

// times is a stage of a chain. It multiplies by a weight.
type times struct {
	name        string
	first, last bool
	weight      float64
	param       string
	tied        bool
	contributes batchctx.Contribution
	grad        number
	lossSum     func(x float64, m int) float64
	lossWeight  func(m int) float64
	gotGradIn   *bool
	metric      bool // its loss is a metric
}

func (s *times) Spec() stages.Spec {
	spec := stages.Spec{Name: s.name, Slots: []string{"x"}}
	if s.first {
		spec.Reads = []stages.Read{{Part: "x"}}
	} else {
		spec.Inputs = wire
	}
	if s.last {
		spec.Losses = []string{"loss"}
		if s.metric {
			spec.Metrics = spec.Losses
		}
	} else {
		spec.Outputs = wire
	}
	return spec
}

func (s *times) Params() []batchctx.Use[number] {
	if s.param == "" {
		return nil
	}
	return []batchctx.Use[number]{{Name: s.param, Grad: s.grad, Contributes: s.contributes, Tied: s.tied}}
}

func (s *times) Forward(_ context.Context, mb view, in, out []number) error {
	var x number
	if s.first {
		x = mb.Part(1)
	} else {
		x = in[0]
	}
	mb.Save(1, mb.Retain(x))
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
	mb.Loss(1, sum, weight)
	return nil
}

func (s *times) Backward(_ context.Context, mb view, gradOut, gradIn []number) error {
	x := mb.Take(1)
	if s.gotGradIn != nil {
		*s.gotGradIn = gradIn != nil
	}
	dy := 0.0
	if s.metric {
		dy = 1
	} else if s.last {
		seed := mb.LossSeed(1)
		dy = float64(seed)
	} else {
		dy = *gradOut[0]
	}
	if s.param != "" && !(s.contributes == batchctx.Sometimes && mb.Index()%2 == 1) {
		g, write := mb.GradFirst(1)
		switch write {
		case batchctx.First:
			*g = *x * dy
		case batchctx.Add:
			*g += float64(*x * dy) // not fused: other stages round the product
		}
	}
	if gradIn != nil {
		gradIn[0] = num(s.weight * dy)
	}
	return nil
}

// chain returns three stages that multiply by 2, 3 and 5, with one parameter each.
func chain() []*times {
	return []*times{
		{name: "two", first: true, weight: 2, param: "a", grad: num(math.NaN())},
		{name: "three", weight: 3, param: "b", grad: num(math.NaN())},
		{name: "five", last: true, weight: 5, param: "c", grad: num(math.NaN())},
	}
}

func config(chain []*times) runner.Config[number] {
	cfg := runner.Config[number]{
		Spaces: runner.Spaces[number](memory.NewGCSpace[number](nil, func(number) int64 { return 8 })),

		Losses:    []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
		Gradients: calculator{},
	}
	for _, s := range chain {
		cfg.Stages = append(cfg.Stages, s)
	}
	return cfg
}

// counted is a source of the numbers 1, 2, 3, ... that counts its calls.
type counted struct{ asked, ends int }

func (c *counted) Next(_ context.Context, e batchctx.Entry[number]) error {
	if c.ends > 0 && c.asked == c.ends {
		return io.EOF
	}
	if e.Index() != c.asked {
		return fmt.Errorf("asked for microbatch %d after %d", e.Index(), c.asked)
	}
	c.asked++
	e.Put("x", num(float64(c.asked)))
	return nil
}

func newRunner[T any](t testing.TB, cfg runner.Config[T]) *runner.Runner[T] {
	t.Helper()
	r, err := runner.New(cfg)
	require.NoError(t, err)
	return r
}

// runStep runs a step that must succeed.
func runStep[T any](t testing.TB, r *runner.Runner[T], microbatches int, source runner.Source[T]) *runner.Result {
	t.Helper()
	result, err := r.Step(t.Context(), microbatches, source)
	require.NoError(t, err)
	return result
}

// splitting is a stage that can run I and W separately, and keeps every view.
type splitting struct {
	*times
	kept []view
}

func (s *splitting) Forward(ctx context.Context, mb view, in, out []number) error {
	s.kept = append(s.kept, mb)
	return s.times.Forward(ctx, mb, in, out)
}

func (s *splitting) Backward(ctx context.Context, mb view, gradOut, gradIn []number) error {
	s.kept = append(s.kept, mb)
	return s.times.Backward(ctx, mb, gradOut, gradIn)
}

func (s *splitting) BackwardInput(_ context.Context, mb view, gradOut, gradIn []number) error {
	s.kept = append(s.kept, mb)
	x := mb.Take(1)
	var dy float64
	if gradOut != nil {
		dy = *gradOut[0]
	} else {
		dy = float64(mb.LossSeed(1))
	}
	if gradIn != nil {
		gradIn[0] = num(s.weight * dy)
	}
	mb.SaveFor(batchctx.ByWeight, 2, num(*x*dy))
	return nil
}

func (s *splitting) BackwardWeight(_ context.Context, mb view) error {
	s.kept = append(s.kept, mb)
	dw := mb.Take(2)
	g, write := mb.GradFirst(1)
	if write == batchctx.First {
		*g = 0
	}
	*g += *dw
	return nil
}

func (s *splitting) Spec() stages.Spec {
	spec := s.times.Spec()
	spec.Slots = []string{"x", "carry"}
	return spec
}

// split is a rule: depth-first with I in place of every B, and all W at the end of the step.
func split(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.DepthFirst(p)
	if err != nil {
		return nil, err
	}
	apart := *plan
	var actions, weights []schedule.Action
	for action := range plan.All(0) {
		if action.Kind() == schedule.B {
			weights = append(weights, schedule.NewAction(schedule.W, action.Stage(), action.Microbatch()))
			action = schedule.NewAction(schedule.I, action.Stage(), action.Microbatch())
		}
		actions = append(actions, action)
	}
	apart.Programs = [][]schedule.Segment{{{Body: append(actions, weights...), Repeat: 1}}}
	return &apart, nil
}

// factorOf returns the factor of a step.
func factorOf(r *runner.Result) (factor float64, err error) {
	err = r.Update(func(f float64) error { factor = f; return nil })
	return factor, err
}

// evaluate runs an evaluation that must succeed.
func evaluate[T any](t testing.TB, r *runner.Runner[T], microbatches int, source runner.Source[T]) *runner.Result {
	t.Helper()
	result, err := r.Evaluate(t.Context(), microbatches, source)
	require.NoError(t, err)
	return result
}
