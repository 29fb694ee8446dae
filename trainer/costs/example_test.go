package costs_test

import (
	"context"
	"fmt"
	"log"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/costs"
)

// The embedding and the block of a small transformer each pass on 16 tokens of 8 numbers of 4 bytes.
func Example() {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	model, err := transformer.New(dev, transformer.Config{Vocabulary: 32, Width: 8, Layers: 1, Heads: 2, Context: 16}, 3)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	tokens := runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		ids, ones := make([]int32, 16), make([]float32, 16)
		for i := range ids {
			ids[i], ones[i] = int32(i), 1
		}
		transformer.Put(dev, entry, ids, ids, ones)
		return nil
	})
	measured, err := costs.Measure(context.Background(), costs.Config[kernels.Buffer]{
		Runner: runner.Config[kernels.Buffer]{
			Stages: model.Stages(), Spaces: runner.Spaces(dev), Gradients: dev,
			Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		},
		Source:  func(int) runner.Source[kernels.Buffer] { return tokens },
		Largest: tokens,
	})
	if err != nil {
		log.Fatal(err)
	}
	for i, stage := range measured.Stages {
		fmt.Println(i, "timed:", stage.F > 0 && stage.I > 0 && stage.W > 0 && stage.B > 0, "output:", stage.Output)
	}
	// Output:
	// 0 timed: true output: 512
	// 1 timed: true output: 512
	// 2 timed: true output: 0
}
