package lifetime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

type (
	buffer     = kernels.Buffer
	microbatch = batchctx.Microbatch[buffer]
	weights    = batchctx.Quantization[buffer]
)

// Sizes of the layer: the rows of a microbatch, and the widths of its input and its output.
const rows, in, out = 8, 32, 16

var hidden = []stages.Port{{Name: "hidden"}}

// linear computes y = x·w in FP8 as a training framework does: the plan makes a copy of the weight
// for the forward and one for the backward, the input is saved only columnwise, and the gradient of
// the weight is float32. Tensors are scaled by their own values. A test adds a misuse through one of
// the functions, which may be nil.
type linear struct {
	dev          *kernels.Host
	weight, grad buffer

	forward  func(l *linear, mb microbatch, x buffer) error
	save     func(l *linear, mb microbatch, x *fp8.Tensor) error
	backward func(l *linear, mb microbatch, gradOut buffer, x, dy *fp8.Tensor) error
}

// Spec declares one slot, for the input, and a copy of the weight for each direction.
func (l *linear) Spec() stages.Spec {
	return stages.Spec{Name: "linear", Inputs: hidden, Outputs: hidden, Slots: []string{"x"},
		WeightCopies: []batchctx.WeightCopy{{Name: "weight", At: batchctx.AtForward}, {Name: "weight", At: batchctx.AtBackward}}}
}

// Params returns the weight.
func (l *linear) Params() []batchctx.Use[buffer] {
	return []batchctx.Use[buffer]{{Name: "weight", Grad: l.grad}}
}

// shape returns the shape of a tensor of the layer.
func shape(name string, rows, cols int) fp8.Shape {
	return fp8.Shape{Name: name, Rows: rows, Cols: cols, Encoding: kernels.Encoding{Format: fp8.E4M3, Scaling: kernels.PerTensor}}
}

// quantize makes halves of a tensor.
func (l *linear) quantize(x buffer, s fp8.Shape, usage fp8.Usage) (fp8.Tensor, error) {
	var halves [2]buffer
	op := kernels.Quantize{X: x, Rows: s.Rows, Cols: s.Cols}
	var err error
	if usage&fp8.Rowwise != 0 {
		halves[0], err = l.dev.Alloc(memory.FP8, kernels.Uint8, s.Bytes(fp8.Rowwise))
		op.Rowwise = s.Half(fp8.Rowwise, halves[0])
	}
	if usage&fp8.Columnwise != 0 && err == nil {
		halves[1], err = l.dev.Alloc(memory.FP8, kernels.Uint8, s.Bytes(fp8.Columnwise))
		op.Columnwise = s.Half(fp8.Columnwise, halves[1])
	}
	if err == nil {
		err = l.dev.Quantize(op)
	}
	return fp8.NewTensor(s, halves[0], halves[1]), err
}

// QuantizeWeights makes the copies of the step.
func (l *linear) QuantizeWeights(_ context.Context, call weights) error {
	w, err := l.quantize(l.weight, shape("weight", in, out), fp8.Rowwise|fp8.Columnwise)
	if err != nil {
		return err
	}
	rowwise, columnwise := w.Buffers()
	call.Put(1, columnwise)
	call.Put(2, rowwise)
	return nil
}

// Forward returns x·w.
func (l *linear) Forward(_ context.Context, mb microbatch, from, to []buffer) error {
	if l.forward != nil {
		mb.Check(l.forward(l, mb, from[0]))
	}
	x, err := l.quantize(from[0], shape("input", rows, in), fp8.Rowwise|fp8.Columnwise)
	mb.Check(err)
	to[0] = mb.Must(l.dev.Alloc(memory.Activation, kernels.Float32, rows*out))
	a, err := x.Rowwise()
	mb.Check(err)
	s := shape("weight", in, out)
	l.product(mb, kernels.QuantizedMatMul{A: a, B: s.Half(fp8.Columnwise, mb.WeightCopy(1)), C: to[0], M: rows, N: out, K: in})
	if l.save != nil {
		return l.save(l, mb, &x)
	}
	return errors.Join(x.Keep(mb, fp8.Columnwise), x.Save(mb, batchctx.ByBackward, 1))
}

// Backward returns dy·wᵀ and adds xᵀ·dy to the gradient of the weight.
func (l *linear) Backward(_ context.Context, mb microbatch, gradOut, gradIn []buffer) error {
	x, err := fp8.Take(mb, 1, shape("input", rows, in), fp8.Columnwise)
	mb.Check(err)
	dy, err := l.quantize(gradOut[0], shape("gradient", rows, out), fp8.Rowwise|fp8.Columnwise)
	mb.Check(err)
	gradIn[0] = mb.Must(l.dev.Alloc(memory.ActGrad, kernels.Float32, rows*in))
	byRow, err1 := dy.Rowwise()
	byColumn, err2 := dy.Columnwise()
	input, err3 := x.Columnwise()
	mb.Check(errors.Join(err1, err2, err3))
	w := mb.WeightCopy(2)
	grad, write := mb.GradFirst(1)
	s := shape("weight", in, out)
	l.product(mb, kernels.QuantizedMatMul{A: byRow, B: s.Half(fp8.Rowwise, w), C: gradIn[0], M: rows, N: in, K: out})
	l.product(mb, kernels.QuantizedMatMul{A: input, B: byColumn, C: grad, M: in, N: out, K: rows, Accumulate: write == batchctx.Add})
	if l.backward != nil {
		mb.Check(l.backward(l, mb, gradOut[0], &x, &dy))
	}
	return errors.Join(x.Release(mb), dy.Release(mb))
}

// product runs a product with its workspace.
func (l *linear) product(mb microbatch, op kernels.QuantizedMatMul) {
	if n := l.dev.QuantizedWorkspace(op.M, op.N, op.K); n > 0 {
		op.Workspace = mb.Must(l.dev.Alloc(memory.Workspace, kernels.Float32, n))
		defer mb.Release(op.Workspace)
	}
	mb.Check(l.dev.QuantizedMatMul(op))
}

// network is the layer between a source of numbers and half a sum of squares.
type network struct {
	dev    *kernels.Host
	linear *linear
	stages []stages.Stage[buffer]
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 24})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	n := &network{dev: dev, linear: &linear{dev: dev}}
	for scope, b := range map[memory.Scope]*buffer{memory.Weights: &n.linear.weight, memory.Gradients: &n.linear.grad} {
		*b, err = dev.AllocIn(scope, kernels.Float32, in*out)
		require.NoError(t, err)
		require.NoError(t, dev.Zero(*b))
	}
	require.NoError(t, dev.Normal(n.linear.weight, 0.1, kernels.Key{Seed: 3}))
	bottom := &stages.Func[buffer]{
		Declares: stages.Spec{Name: "bottom", Reads: []stages.Read{{Part: "x"}}, Outputs: hidden},
		ForwardFunc: func(_ context.Context, mb microbatch, _, to []buffer) error {
			x := mb.Part(1)
			to[0] = mb.Must(dev.Alloc(memory.Activation, kernels.Float32, x.N))
			return dev.Copy(to[0], x)
		},
		BackwardFunc: func(context.Context, microbatch, []buffer, []buffer) error { return nil },
	}
	top := &stages.Func[buffer]{
		Declares: stages.Spec{Name: "top", Inputs: hidden, Slots: []string{"x"}, Losses: []string{"loss"}},
		ForwardFunc: func(_ context.Context, mb microbatch, from, _ []buffer) error {
			sum, err := dev.SumSquares(from[0])
			mb.Check(err)
			mb.Save(1, mb.Retain(from[0]))
			mb.Loss(1, sum/2, 1)
			return nil
		},
		BackwardFunc: func(_ context.Context, mb microbatch, _, gradIn []buffer) error {
			y := mb.Take(1)
			mb.LossSeed(1) // the seed is 1
			gradIn[0] = mb.Must(dev.Alloc(memory.ActGrad, kernels.Float32, y.N))
			return dev.Copy(gradIn[0], y)
		},
	}
	n.stages = []stages.Stage[buffer]{bottom, n.linear, top}
	return n
}

// config returns the runner's configuration.
func (n *network) config() runner.Config[buffer] {
	return runner.Config[buffer]{
		Stages: n.stages, Spaces: runner.Spaces(n.dev), Gradients: n.dev,
		Losses: []loss.Def{{Name: "loss", Objective: true}},
	}
}

// Next provides a microbatch of numbers.
func (n *network) Next(_ context.Context, entry batchctx.Entry[buffer]) error {
	b := entry.Must(n.dev.Alloc(memory.Entry, kernels.Float32, rows*in))
	key := kernels.Key{Seed: 5, Microbatch: int64(entry.Index())}
	entry.Check(n.dev.Normal(b, 1, key))
	entry.Put("x", b)
	return nil
}
