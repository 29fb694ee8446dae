package gomlx_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/gomlx"
	"github.com/weir-ml/weir/stages/stagetest"
)

type graphFn = func(scope *model.Scope, in []*graph.Node) []*graph.Node

func one(layer func(scope *model.Scope, x *graph.Node) *graph.Node) graphFn {
	return func(scope *model.Scope, in []*graph.Node) []*graph.Node { return []*graph.Node{layer(scope, in[0])} }
}

func identity(_ *model.Scope, in []*graph.Node) []*graph.Node { return in }

// kinds are layers, each with the dimensions of its input.
var kinds = []struct {
	name       string
	dimensions []int
	layer      graphFn
	random     bool
}{
	{"dense", []int{4, 6}, one(func(s *model.Scope, x *graph.Node) *graph.Node { return layers.Dense(s.In("d"), x, true, 5) }), false},
	{"activations", []int{4, 6}, one(func(s *model.Scope, x *graph.Node) *graph.Node {
		return graph.Add(activation.Apply(activation.TypeGelu, x), activation.Apply(activation.TypeSwish, graph.Add(x, activation.Apply(activation.TypeTanh, x))))
	}), false},
	{"norms", []int{4, 6}, one(func(s *model.Scope, x *graph.Node) *graph.Node {
		return norm.RMSNorm(s.In("r"), norm.LayerNorm(s.In("l"), x, -1).Done()).Done()
	}), false},
	{"convolution", []int{2, 6, 6, 2}, one(func(s *model.Scope, x *graph.Node) *graph.Node {
		x = layers.Convolution(s.In("c"), x).Channels(3).KernelSize(3).PadSame().Done()
		return graph.MeanPool(x).Window(2).Done()
	}), false},
	{"attention", []int{2, 5, 8}, one(func(s *model.Scope, x *graph.Node) *graph.Node {
		return attention.SelfAttention(s.In("a"), x, 2, 4).WithCausalMask(true).Done()
	}), false},
	{"dropout", []int{4, 6}, one(func(s *model.Scope, x *graph.Node) *graph.Node {
		return layers.DropoutStatic(s, layers.Dense(s.In("d"), x, false, 6), 0.3)
	}), true},
	{"embedding", []int{4, 6}, one(func(s *model.Scope, x *graph.Node) *graph.Node {
		index := graph.ConvertDType(graph.Abs(graph.MulScalar(x, 6.99)), dtypes.Int32)
		return layers.Embedding(s.In("e"), index, dtypes.Float32, 7, 3)
	}), false},
}

func around(layer graphFn, dimensions []int) gomlx.Config {
	return gomlx.Config{
		Store:  store(),
		Stages: []gomlx.Stage{{Name: "first", Reads: []string{"x"}, Graph: identity}, {Name: "layer", Graph: layer}, {Name: "last", Graph: identity}},
		Loss: func(_, p []*graph.Node) *graph.Node {
			x := graph.Reshape(p[0], -1)
			return graph.Mul(graph.Sin(graph.IotaFull(x.Graph(), x.Shape())), graph.Sin(x))
		},
		Entry: map[string]shapes.Shape{"x": shapes.Make(dtypes.Float32, dimensions...)},
	}
}

func TestLayersKeepTheContract(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			stagetest.Run(t, stagetest.Config[gomlx.T]{EvalDiffers: kind.random, New: func() (stagetest.Subject[gomlx.T], error) {
				return subject(kind.layer, kind.dimensions, 1)
			}})
		})
	}
	t.Run("loss", func(t *testing.T) {
		stagetest.Run(t, stagetest.Config[gomlx.T]{New: func() (stagetest.Subject[gomlx.T], error) { return subject(identity, []int{4, 6}, 2) }})
	})
}

// TestDifferencesFindAPercent scales the gradient of one variable, the bias of 5 numbers in a dense
// layer, by 1.01.
func TestDifferencesFindAPercent(t *testing.T) {
	faults := stagetest.Check(stagetest.Config[gomlx.T]{New: func() (stagetest.Subject[gomlx.T], error) {
		s, err := subject(kinds[0].layer, kinds[0].dimensions, 1)
		s.Stage = &off{s.Stage}
		return s, err
	}})
	require.Len(t, faults, 1)
	require.Equal(t, stagetest.GradientDiffers, faults[0].Code)
	require.Contains(t, faults[0].Text, "biases")
}

// off is a stage whose gradients of biases are 1.01 times what they should be.
type off struct{ stages.Stage[gomlx.T] }

func (o *off) Unwrap() stages.Stage[gomlx.T] { return o.Stage }

func (o *off) Backward(ctx context.Context, mb batchctx.Microbatch[gomlx.T], gradOut, gradIn []gomlx.T) error {
	err := o.Stage.Backward(ctx, mb, gradOut, gradIn)
	for i, use := range stages.Params(o.Stage) {
		if err == nil && mb.Index() == 1 && strings.HasSuffix(use.Name, "biases") && !mb.Frozen(batchctx.Param(i+1)) {
			var flat any
			flat, err = use.Grad.Data()
			for k := range flat.([]float32) {
				flat.([]float32)[k] *= 1.01
			}
		}
	}
	return err
}

// subject returns one of three stages: the one that provides the input, the layer, or the loss.
func subject(layer graphFn, dimensions []int, stage int) (s stagetest.Subject[gomlx.T], err error) {
	m, err := gomlx.New(around(layer, dimensions))
	if err != nil {
		return s, err
	}
	d := m.Devices[0]
	return stagetest.Subject[gomlx.T]{
		Stage: m.Runner().Stages[stage], Space: d, Gradients: d, Read: bytesOf,
		Make: func(want stagetest.Want) (gomlx.T, error) {
			shape := append([]int{dimensions[0] + want.Microbatch%2}, dimensions[1:]...)
			if want.Kind == stagetest.GradOut {
				shape = outputOf(m, shape)
			}
			x := make([]float32, shapes.Make(dtypes.Float32, shape...).Size())
			for i := range x {
				x[i] = want.Float(i)
			}
			return d.Floats(want.Class, x, shape...)
		},
		Write: func(b gomlx.T, data []byte) error {
			flat, err := b.Data()
			copy(dtypes.UnsafeByteSliceFromAny(flat), data)
			return err
		},
	}, nil
}

func bytesOf(b gomlx.T) ([]byte, error) {
	flat, err := b.Data()
	if err != nil {
		return nil, err
	}
	return dtypes.UnsafeByteSliceFromAny(flat), nil
}

// outputOf returns the dimensions of the layer's output for an input.
func outputOf(m *gomlx.Model, in []int) (out []int) {
	g := graph.NewGraph(m.Devices[0].Backend(), "")
	model.SetStore(g, m.Store)
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, in...))
	return m.Stages[1].Graph(m.Store.RootScope(), []*graph.Node{x})[0].Shape().Dimensions
}
