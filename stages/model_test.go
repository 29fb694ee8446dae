package stages_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
)

type (
	handle = memory.Handle
	view   = batchctx.Microbatch[handle]
	stage  = stages.Stage[handle]
)

// bench is an arena with a model around the stages under test: a bottom stage that reads the
// part "x" and a top stage with the objective.
type bench struct {
	arena *memory.Arena
	space memory.Space[handle]
	calls []string // the calls of the scales
	// At the call with this number, from 1, a scale returns an error, or panics, before it does
	// anything or after it has done everything. 0 means never.
	fails       int
	after, dies bool
	reaches     string // the call in which a stage uses copies of weights that it does not have
}

var errPlanted = errors.New("planted")

// bookOnly is an arena that cannot reclaim: lost buffers stay lost.
type bookOnly struct {
	memory.Space[handle]
	memory.Book
}

func newBench(t testing.TB) *bench {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	return &bench{arena: arena, space: bookOnly{arena, arena}}
}

func (b *bench) floats(h handle) []float32 {
	data, err := b.arena.Data(h)
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

func (b *bench) alloc(class memory.Class, n int) (handle, []float32) {
	h, err := b.arena.Alloc(class, int64(4*n))
	if err != nil {
		panic(err)
	}
	return h, b.floats(h)
}

var wire = []stages.Port{{Name: "x"}, {Name: "index", NoGrad: true}}

// bottom returns the part "x", and relays it as the index.
func (b *bench) bottom(trains bool) stage {
	return &stages.Func[handle]{
		Declares: stages.Spec{Name: "bottom", Outputs: wire, Reads: []stages.Read{{Part: "x"}}, Frozen: !trains},
		ForwardFunc: func(_ context.Context, mb view, _, out []handle) error {
			h := mb.Part(1)
			out[0], out[1] = mb.Retain(h), mb.Retain(h)
			return nil
		},
	}
}

// top computes Σ x²/2 over the microbatch's elements.
func (b *bench) top() stage {
	return &stages.Func[handle]{
		Declares: stages.Spec{Name: "top", Inputs: wire, Slots: []string{"x"}, Losses: []string{"objective"}},
		ForwardFunc: func(_ context.Context, mb view, in, _ []handle) error {
			x := b.floats(in[0])
			var sum float64
			for _, v := range x {
				sum += float64(v) * float64(v) / 2
			}
			mb.Loss(1, sum, float64(len(x)))
			mb.Save(1, mb.Retain(in[0]))
			return nil
		},
		BackwardFunc: func(_ context.Context, mb view, _, gradIn []handle) error {
			seed := mb.LossSeed(1)
			h := mb.Take(1)
			if gradIn == nil {
				return nil
			}
			x := b.floats(h)
			g, dx := b.alloc(memory.ActGrad, len(x))
			for i := range x {
				dx[i] = seed * x[i]
			}
			gradIn[0] = g
			return nil
		},
	}
}

// scale multiplies by a weight and by an entry part, which its backward reads again. It saves x in
// a slot, records a metric, and relays the index. Decorators must not mix up its workspace, or its
// indices of slots, reads, losses and parameters.
type scale struct {
	*bench
	name   string
	weight float32
	grad   handle
	part   string
	tied   string          // the name of the parameter if it is not the stage's
	passes []batchctx.Pass // of its calls
}

func (b *bench) scale(name string, weight float32) *scale {
	grad, _ := b.alloc(memory.Resident, 1)
	return &scale{bench: b, name: name, weight: weight, grad: grad, part: "part of " + name}
}

func (s *scale) Spec() stages.Spec {
	return stages.Spec{
		Name: s.name, Inputs: wire, Outputs: wire, Slots: []string{"x", "carry"},
		Reads:  []stages.Read{{Part: s.part}, {Part: s.part, At: batchctx.AtBackward | batchctx.AtWeight}},
		Losses: []string{"metric of " + s.name},
	}
}

func (s *scale) Params() []batchctx.Use[handle] {
	name := s.name
	if s.tied != "" {
		name = s.tied
	}
	return []batchctx.Use[handle]{{Name: name, Grad: s.grad, Tied: s.tied != ""}}
}

// call records a call, and fails if it is the one with number fails.
func (s *scale) call(mb view, what string, work func() error) error {
	s.calls = append(s.calls, fmt.Sprintf("%s %s%d", s.name, what, mb.Index()))
	now := len(s.calls) == s.fails
	if !now || s.after {
		if err := work(); err != nil || !now {
			return err
		}
	}
	if s.dies {
		panic(errPlanted)
	}
	return errPlanted
}

func (s *scale) Forward(_ context.Context, mb view, in, out []handle) error {
	return s.call(mb, "F", func() error {
		s.passes = append(s.passes, mb.Pass())
		part := mb.Part(1)
		x := s.floats(in[0])
		h, y := s.alloc(memory.Activation, len(x))
		var sum float64
		for i := range x {
			y[i] = s.weight * x[i] * s.floats(part)[0]
			sum += float64(y[i])
		}
		out[0], out[1] = h, mb.Retain(in[1])
		mb.Loss(1, sum, float64(len(x)))
		mb.Save(1, mb.Retain(in[0]))
		return nil
	})
}

func (s *scale) Backward(_ context.Context, mb view, gradOut, gradIn []handle) error {
	return s.call(mb, "B", func() error {
		s.passes = append(s.passes, mb.Pass())
		h := mb.Take(1)
		part := mb.Part(2)
		s.input(gradOut, gradIn, s.floats(part)[0])
		return s.contribute(mb, s.floats(h), s.floats(gradOut[0]), s.floats(part)[0])
	})
}

func (s *scale) input(gradOut, gradIn []handle, part float32) {
	if gradIn == nil {
		return
	}
	dy := s.floats(gradOut[0])
	h, dx := s.alloc(memory.ActGrad, len(dy))
	for i := range dy {
		dx[i] = s.weight * dy[i] * part
	}
	gradIn[0] = h
}

func (s *scale) contribute(mb view, x, dy []float32, part float32) error {
	g, write := mb.GradFirst(1)
	if write == batchctx.Skip {
		return nil
	}
	if write == batchctx.First {
		s.floats(g)[0] = 0
	}
	for i := range x {
		s.floats(g)[0] += x[i] * dy[i] * part
	}
	return nil
}

// splitScale also computes its backward in two calls.
type splitScale struct{ *scale }

func (s splitScale) BackwardInput(_ context.Context, mb view, gradOut, gradIn []handle) error {
	return s.call(mb, "I", func() error {
		h := mb.Take(1)
		part := mb.Part(2)
		s.input(gradOut, gradIn, s.floats(part)[0])
		x, dy := s.floats(h), s.floats(gradOut[0])
		carry, c := s.alloc(memory.Carry, len(x)+len(dy))
		copy(c[copy(c, x):], dy)
		mb.SaveFor(batchctx.ByWeight, 2, carry)
		return nil
	})
}

func (s splitScale) BackwardWeight(_ context.Context, mb view) error {
	return s.call(mb, "W", func() error {
		h := mb.Take(2)
		part := mb.Part(2)
		c := s.floats(h)
		return s.contribute(mb, c[:len(c)/2], c[len(c)/2:], s.floats(part)[0])
	})
}

func (b *bench) Zero(g handle) error { clear(b.floats(g)); return nil }

func (b *bench) Add(dst, src handle) error { b.floats(dst)[0] += b.floats(src)[0]; return nil }

func (b *bench) SumSquares(g handle) (float64, error) {
	v := float64(b.floats(g)[0])
	return v * v, nil
}

// setting describes how a chain is run.
type setting struct {
	rule   schedule.Rule
	frozen bool // the bottom trains nothing
}

// build returns a runner and a source for a chain between bottom and top.
func (b *bench) build(t testing.TB, set setting, chain ...stage) (*runner.Runner[handle], runner.Source[handle]) {
	chain = append(append([]stage{b.bottom(!set.frozen)}, chain...), b.top())
	parts := []string{"x"}
	losses := []loss.Def{{Name: "objective", Reduction: loss.Mean, Objective: true}}
	for _, name := range []string{"a", "b", "c", "d"} {
		parts = append(parts, "part of "+name)
		losses = append(losses, loss.Def{Name: "metric of " + name, Metric: true})
	}
	r, err := runner.New(runner.Config[handle]{
		Stages: chain, Spaces: runner.Spaces(b.space), Losses: losses, Gradients: b,
		Plan: runner.Plan{Rule: set.rule},
	})
	require.NoError(t, err)
	return r, runner.Indexed(func(_ context.Context, entry batchctx.Entry[handle]) error {
		for part, name := range parts {
			if !entry.Wants(name) {
				continue
			}
			n := 1
			if part == 0 {
				n = 3 + entry.Index()
			}
			h, x := b.alloc(memory.Entry, n)
			for i := range x {
				x[i] = 1 / float32(2+3*part+5*i+7*entry.Index())
			}
			entry.Put(name, h)
		}
		return nil
	})
}

const microbatches = 3

// outcome is the result of a step, bit by bit.
type outcome struct {
	losses []loss.Value
	grads  []uint32
	norm   uint64
}

// outcome reads the gradients of some scales after a step.
func (b *bench) outcome(result *runner.Result, scales []*scale) outcome {
	o := outcome{losses: result.Losses, norm: math.Float64bits(result.GradNorm)}
	for _, s := range scales {
		o.grads = append(o.grads, math.Float32bits(b.floats(s.grad)[0]))
	}
	return o
}

// train runs a step of a model made of new scales.
func train(t testing.TB, set setting, split bool, tied bool, make func(t testing.TB, a, b, c stage) []stage) (outcome, *bench) {
	b := newBench(t)
	scales, wrapped := b.scales(split)
	if tied {
		scales[2].tied = "a"
	}
	r, source := b.build(t, set, make(t, wrapped[0], wrapped[1], wrapped[2])...)
	before := b.arena.Live()
	result, err := r.Step(t.Context(), microbatches, source)
	require.NoError(t, err)
	require.Equal(t, before, b.arena.Live())
	return b.outcome(result, scales), b
}

func (b *bench) scales(split bool) (scales []*scale, wrapped []stage) {
	for i, name := range []string{"a", "b", "c"} {
		s := b.scale(name, 1+float32(i)/3)
		scales = append(scales, s)
		if split {
			wrapped = append(wrapped, splitScale{s})
		} else {
			wrapped = append(wrapped, s)
		}
	}
	return scales, wrapped
}

// sequential returns the result of Sequential for stages that fit.
func sequential(t testing.TB, name string, inner ...stage) stage {
	s, err := stages.Sequential(name, inner...)
	require.NoError(t, err)
	return s
}

// weightsLate returns depth-first with I and W for every B of the given stages, each W after the
// next I.
func weightsLate(stages ...int) schedule.Rule {
	return stagetest.SplitRule(schedule.DepthFirst, 1, stages...)
}
