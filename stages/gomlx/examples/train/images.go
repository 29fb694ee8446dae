package main

import (
	"math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/weir-ml/weir/stages/gomlx"
)

const side, kinds = 12, 4 // pixels on a side of an image, and number of kinds of images

// images returns a convolutional network that distinguishes kinds of patterns.
func images() (example, error) {
	convolution := func(name string, channels int) gomlx.Stage {
		return gomlx.Stage{Name: name, Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			x := layers.Convolution(scope.In("%s", name), in[0]).Channels(channels).KernelSize(3).PadSame().Done()
			return []*graph.Node{graph.MeanPool(activation.Apply(activation.TypeRelu, x)).Window(2).Done()}
		}}
	}
	dense := func(name string, out int, act activation.Type) gomlx.Stage {
		return gomlx.Stage{Name: name, Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			x := graph.Reshape(in[0], in[0].Shape().Dimensions[0], -1)
			return []*graph.Node{activation.Apply(act, layers.Dense(scope.In("%s", name), x, true, out))}
		}}
	}
	all := []gomlx.Stage{convolution("edges", 8), convolution("shapes", 16), dense("hidden", 32, activation.TypeRelu), dense("kinds", kinds, activation.TypeNone)}
	all[0].Reads = []string{"image"}
	const rows = 8
	return example{
		config: gomlx.Config{
			Stages: all, Labels: []string{"kind"}, Loss: loss.SparseCategoricalCrossEntropyLogits,
			Metrics: map[string]gomlx.Loss{"accuracy": func(labels, p []*graph.Node) *graph.Node {
				return metric.SparseCategoricalAccuracyGraph(nil, labels, p)
			}},
			Entry: map[string]shapes.Shape{
				"image": shapes.Make(dtypes.Float32, rows, side, side, 1), "kind": shapes.Make(dtypes.Int32, rows, 1),
			},
			Optimizer: optimizer.Adam().LearningRate(0.01).Done().(gomlx.Optimizer),
		},
		input: "image", rows: rows, batch: pictures,
	}, nil
}

// pictures returns noisy images of horizontal stripes, vertical stripes, diagonals and checks, and
// the kind of each.
func pictures(first, rows int) (image, kind *tensors.Tensor) {
	x, y := make([]float32, 0, rows*side*side), make([]int32, rows)
	for i := range rows {
		random := rand.New(rand.NewPCG(3, uint64(first+i)))
		y[i] = int32(random.IntN(kinds))
		shift := random.IntN(4)
		for r := range side {
			for c := range side {
				on := [kinds]int{r + shift, c + shift, r + c + shift, (r+shift)&2 ^ c&2}[y[i]] & 2
				x = append(x, float32(on)/2+0.8*float32(random.NormFloat64()))
			}
		}
	}
	return tensors.FromFlatDataAndDimensions(x, rows, side, side, 1), tensors.FromFlatDataAndDimensions(y, rows, 1)
}
