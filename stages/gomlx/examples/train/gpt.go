package main

import (
	"context"
	"fmt"
	"go/build"
	"math/rand/v2"
	"path/filepath"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/attention/pos"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/weir-ml/weir/stages/gomlx"
	"github.com/weir-ml/weir/trainer/corpus"
)

const width, heads, length = 48, 4, 32

// gpt returns a transformer that predicts the next byte of a text.
func gpt() (example, error) {
	text, err := corpus.Read(context.Background(), filepath.Join(build.Default.GOROOT, "src/testdata/Isaac.Newton-Opticks.txt"), 1<<24, nil)
	if err != nil {
		return example{}, err
	}
	embed := gomlx.Stage{Name: "embed", Reads: []string{"tokens"}, Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
		return []*graph.Node{layers.Embedding(scope.In("embed"), in[0], dtypes.Float32, 256, width)}
	}}
	block := func(i int) gomlx.Stage {
		return gomlx.Stage{Name: fmt.Sprint("block", i), Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
			scope = scope.In("block%d", i)
			x := in[0]
			y := norm.LayerNorm(scope.In("norm1"), x, -1).Done()
			y = attention.SelfAttention(scope, y, heads, width/heads).WithPositionalEncoder(pos.NewRoPE(10_000)).WithCausalMask(true).Done()
			x = graph.Add(x, y)
			y = norm.LayerNorm(scope.In("norm2"), x, -1).Done()
			y = activation.Apply(activation.TypeGelu, layers.Dense(scope.In("up"), y, true, 4*width))
			return []*graph.Node{graph.Add(x, layers.Dense(scope.In("down"), y, true, width))}
		}}
	}
	head := gomlx.Stage{Name: "head", Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
		x := norm.LayerNorm(scope.In("norm"), in[0], -1).Done()
		return []*graph.Node{layers.Dense(scope.In("head"), x, false, 256)}
	}}
	const rows = 4
	return example{
		config: gomlx.Config{
			Stages: []gomlx.Stage{embed, block(0), block(1), head},
			Labels: []string{"next"}, Loss: loss.SparseCategoricalCrossEntropyLogits,
			Entry: map[string]shapes.Shape{
				"tokens": shapes.Make(dtypes.Int32, rows, length), "next": shapes.Make(dtypes.Int32, rows, length, 1),
			},
			Optimizer: optimizer.Adam().LearningRate(0.006).Done().(gomlx.Optimizer),
		},
		input: "tokens", rows: rows, floor: fmt.Sprintf("byte frequencies alone: %.4f nats", text.Entropy()),
		batch: func(first, rows int) (tokens, next *tensors.Tensor) {
			x, y := make([]int32, 0, rows*length), make([]int32, 0, rows*length)
			for i := range rows {
				at := rand.New(rand.NewPCG(5, uint64(first+i))).IntN(len(text.Bytes) - length - 1)
				for k := range length {
					x, y = append(x, int32(text.Bytes[at+k])), append(y, int32(text.Bytes[at+k+1]))
				}
			}
			return tensors.FromFlatDataAndDimensions(x, rows, length), tensors.FromFlatDataAndDimensions(y, rows, length, 1)
		},
	}, nil
}
