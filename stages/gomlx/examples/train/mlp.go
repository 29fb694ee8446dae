package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/weir-ml/weir/stages/gomlx"
)

// mlp returns a network that learns which points of the plane are inside a ring.
func mlp() (example, error) {
	const rows = 8
	ex := example{
		config: gomlx.Config{
			Labels: []string{"inside"}, Loss: loss.BinaryCrossentropyLogits,
			Entry:     map[string]shapes.Shape{"point": shapes.Make(dtypes.Float32, rows, 2), "inside": shapes.Make(dtypes.Float32, rows, 1)},
			Optimizer: optimizer.Adam().LearningRate(0.02).Done().(gomlx.Optimizer),
		},
		input: "point", rows: rows, batch: ring,
	}
	for i, out := range []int{64, 64, 64, 1} {
		ex.config.Stages = append(ex.config.Stages, gomlx.Stage{Name: fmt.Sprint("layer", i), Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			x := layers.Dense(scope.In("layer%d", i), in[0], true, out)
			if out > 1 {
				x = activation.Apply(activation.TypeTanh, x)
			}
			return []*graph.Node{x}
		}})
	}
	ex.config.Stages[0].Reads = []string{"point"}
	return ex, nil
}

// ring returns random points in the plane, each labeled by whether it lies inside a ring.
func ring(first, rows int) (points, inside *tensors.Tensor) {
	x, y := make([]float32, 2*rows), make([]float32, rows)
	for i := range rows {
		random := rand.New(rand.NewPCG(7, uint64(first+i)))
		a, b := 2*random.Float32()-1, 2*random.Float32()-1
		x[2*i], x[2*i+1] = a, b
		if r := math.Hypot(float64(a), float64(b)); r > 0.4 && r < 0.8 {
			y[i] = 1
		}
	}
	return tensors.FromFlatDataAndDimensions(x, rows, 2), tensors.FromFlatDataAndDimensions(y, rows, 1)
}
