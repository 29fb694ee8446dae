package transformer_test

import (
	"context"
	"fmt"
	"log"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// text provides lines of a text as microbatches: each byte predicts the next one.
type text struct {
	dev   kernels.Device
	lines []string
}

func (s text) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	line := s.lines[entry.Index()]
	tokens, labels, weights := []int32{}, []int32{}, []float32{}
	for i := range len(line) - 1 {
		tokens, labels = append(tokens, int32(line[i])), append(labels, int32(line[i+1]))
		weights = append(weights, 1)
	}
	transformer.Put(s.dev, entry, tokens, labels, weights)
	return nil
}

// A byte-level model over three stages memorizes two lines.
func Example() {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	model, err := transformer.New(dev, transformer.Config{
		Vocabulary: 256, Width: 16, Layers: 1, Heads: 2, Context: 32,
	}, 3)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	run, err := runner.New(runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: runner.Spaces(dev), Gradients: dev,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()

	lines := text{dev, []string{"a weir is a low dam", "the water keeps flowing"}}
	var losses []float64
	for range 20 {
		result, err := run.Step(context.Background(), len(lines.lines), lines)
		if err != nil {
			log.Fatal(err)
		}
		if err := model.Update(transformer.AdamW{LearningRate: 0.01}, result, 1); err != nil {
			log.Fatal(err)
		}
		value := result.Loss(transformer.LossName)
		losses = append(losses, value)
	}
	fmt.Printf("first loss: %.1f nats per byte\n", losses[0])
	fmt.Println("loss fell:", losses[len(losses)-1] < losses[0]-1)
	fmt.Println("updates:", model.Updates)
	// Output:
	// first loss: 5.5 nats per byte
	// loss fell: true
	// updates: 20
}
