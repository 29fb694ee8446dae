// Mlp trains a network of GoMLX's layers, by default on four ranks under 1F1B and with 4,096
// microbatches per step.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/gomlx"
)

const rows = 8 // per microbatch

// layer returns one stage of the model.
func layer(name string, out int, last bool) gomlx.Stage {
	return gomlx.Stage{Name: name, Graph: func(scope *model.Scope, in []*graph.Node) []*graph.Node {
		x := layers.Dense(scope.In("%s", name), in[0], true, out)
		if !last {
			x = activation.Apply(activation.TypeSwish, x)
		}
		return []*graph.Node{x}
	}}
}

func main() {
	steps := flag.Int("steps", 20, "steps")
	microbatches := flag.Int("microbatches", 4096, "microbatches of a step")
	plan := flag.String("plan", "1f1b", "schedule")
	ranks := flag.Int("ranks", 4, "ranks")
	flag.Parse()
	if err := train(context.Background(), *steps, *microbatches, *plan, *ranks, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func train(ctx context.Context, steps, microbatches int, plan string, ranks int, out io.Writer) error {
	all := []gomlx.Stage{layer("one", 32, false), layer("two", 32, false), layer("three", 32, false), layer("four", 1, true)}
	all[0].Reads = []string{"point"}
	backend, err := gomlx.NewBackend("")
	if err != nil {
		return err
	}
	points, err := ring(backend, microbatches)
	if err != nil {
		return err
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(7))
	m, err := gomlx.New(gomlx.Config{
		Backend: backend, Store: store, Stages: all, Ranks: ranks, Schedule: plan,
		Entry:  map[string]shapes.Shape{"point": shapes.Make(dtypes.Float32, rows, 2), "inside": shapes.Make(dtypes.Float32, rows, 1)},
		Labels: []string{"inside"}, Loss: loss.BinaryCrossentropyLogits,
		Optimizer: optimizer.Adam().LearningRate(0.02).Done().(gomlx.Optimizer),
	})
	if err != nil {
		return err
	}
	defer m.Close()
	run, err := runner.New(m.Runner())
	if err != nil {
		return err
	}
	defer run.Close()
	source := m.Dataset(points, "point")
	for range steps {
		step, err := run.Step(ctx, microbatches, source)
		if err != nil {
			return err
		}
		if err := step.Update(m.Update); err != nil {
			return err
		}
		fmt.Fprintf(out, "step %2d  loss %.4f  peak %d bytes  growth per microbatch %v\n", step.Step, step.Loss("loss"), step.Peak, step.Growth)
	}
	return nil
}

// ring returns a GoMLX dataset of random points in the plane, each labeled by whether it lies
// inside a ring.
func ring(backend *gomlx.Backend, batches int) (*dataset.InMemoryDataset, error) {
	random := rand.New(rand.NewPCG(7, 0))
	var points, inside [][]float32
	for range rows * batches {
		x, y := 2*random.Float32()-1, 2*random.Float32()-1
		points, inside = append(points, []float32{x, y}), append(inside, []float32{0})
		if r := math.Hypot(float64(x), float64(y)); r > 0.4 && r < 0.8 {
			inside[len(inside)-1][0] = 1
		}
	}
	ds, err := dataset.InMemoryFromData(backend, "ring", []any{points}, []any{inside})
	if err != nil {
		return nil, err
	}
	return ds.BatchSize(rows, true), nil
}
