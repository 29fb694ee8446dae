package gomlx_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
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
				m, err := gomlx.New(around(kind.layer, kind.dimensions))
				if err != nil {
					return stagetest.Subject[gomlx.T]{}, err
				}
				d, layer := m.Devices[0], m.Runner().Stages[1]
				return stagetest.Subject[gomlx.T]{
					Stage: layer, Space: d, Gradients: d, Read: bytesOf,
					Make: func(want stagetest.Want) (gomlx.T, error) {
						dimensions := append([]int{kind.dimensions[0] + want.Microbatch%2}, kind.dimensions[1:]...)
						if want.Kind == stagetest.GradOut {
							dimensions = outputOf(m, dimensions)
						}
						x := make([]float32, shapes.Make(dtypes.Float32, dimensions...).Size())
						for i := range x {
							x[i] = want.Float(i)
						}
						return d.Floats(want.Class, x, dimensions...)
					},
					Write: func(b gomlx.T, data []byte) error {
						flat, err := b.Data()
						copy(dtypes.UnsafeByteSliceFromAny(flat), data)
						return err
					},
				}, nil
			}})
		})
	}
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

// TestFiniteDifferences moves variables and inputs along the gradient.
func TestFiniteDifferences(t *testing.T) {
	const h = 1e-2
	for _, kind := range kinds {
		if kind.random {
			continue // it has no derivative where the draw differs from Eval
		}
		t.Run(kind.name, func(t *testing.T) {
			trainable := func(s *model.Scope, in []*graph.Node) []*graph.Node { // x is a variable too
				shift := s.VariableWithValue("shift", tensors.FromShape(in[0].Shape()))
				return []*graph.Node{graph.Add(in[0], shift.NodeValue(in[0]))}
			}
			cfg := around(kind.layer, kind.dimensions)
			cfg.Stages[0].Graph = trainable
			m, err := gomlx.New(cfg)
			require.NoError(t, err)
			run, err := runner.New(m.Runner())
			require.NoError(t, err)
			x := make([]float32, cfg.Entry["x"].Size())
			for i := range x {
				x[i] = float32(math.Sin(float64(3*i) + 1))
			}
			source := runner.Indexed(func(_ context.Context, e batchctx.Entry[gomlx.T]) error {
				e.Put("x", e.Must(m.Devices[0].Floats(memory.Entry, x, kind.dimensions...)))
				return nil
			})
			step, err := run.Step(t.Context(), 1, source)
			require.NoError(t, err)
			var squares float64
			var grads [][]float32
			var to []*model.Variable
			for _, s := range m.Runner().Stages {
				for _, use := range stages.Params(s) {
					g := make([]float32, use.Grad.Bytes()/4)
					require.NoError(t, use.Grad.ToFlatData(g))
					for _, v := range g {
						squares += float64(v) * float64(v)
					}
					grads, to = append(grads, g), append(to, m.Store.GetVariable(use.Name))
				}
			}
			require.NotZero(t, squares)
			move := func(by float64) float64 {
				for i, v := range to {
					require.NoError(t, tensors.MutableFlatData(v.MustValue(), func(x []float32) {
						for k, g := range grads[i] {
							x[k] += float32(by / math.Sqrt(squares) * float64(g))
						}
					}))
				}
				step, err = run.Evaluate(t.Context(), 1, source)
				require.NoError(t, err)
				return step.Losses[0].Sum
			}
			up := move(h)
			down := move(-2 * h)
			require.InEpsilon(t, math.Sqrt(squares), (up-down)/(2*h), 0.01, fmt.Sprint(up, down))
		})
	}
}
