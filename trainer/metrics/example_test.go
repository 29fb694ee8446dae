package metrics_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"strings"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/metrics"
)

// The run of a tiny model: its log, its summary and its page.
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
	run := metrics.New(1)
	r, err := runner.New(runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: runner.Spaces(dev), Gradients: dev, Hooks: run.Hooks(),
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	var memoryLog bytes.Buffer
	run.Begin(metrics.Config{Spaces: []metrics.Space{dev}, Log: &memoryLog, LossUnit: "nats"})
	for step := range 2 {
		result, err := run.Step(func() (*runner.Result, error) { return r.Step(context.Background(), 100, counting(dev)) })
		if err != nil {
			log.Fatal(err)
		}
		if err := model.Update(transformer.AdamW{LearningRate: 0.01}, result, 1); err != nil {
			log.Fatal(err)
		}
		run.FinishStep(step+1, result, result.Losses[0].Value, 16*100)
	}
	s := run.Summary()
	fmt.Println("growth", s.Growth, "over", s.GrowthOver, "microbatches; learns:", *s.LossTrain < *s.LossTrainFirst)
	fmt.Println("records in the log:", strings.Count(memoryLog.String(), `"microbatch":`))
	page := run.Page()
	page.Title = "A tiny run"
	for _, figure := range page.Figures {
		fmt.Println("figure:", figure.Title)
	}
	if err := page.Write(new(bytes.Buffer)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// growth 0 over 200 microbatches; learns: true
	// records in the log: 200
	// figure: The memory of the steps, rank 0
	// figure: Live after a microbatch, rank 0
	// figure: Within a step, rank 0
	// figure: From step to step, rank 0
	// figure: Reserved, rank 0
	// figure: Inside the last microbatches
	// figure: Loss
}

// counting makes entries of 16 consecutive tokens.
func counting(dev *kernels.Host) runner.Source[kernels.Buffer] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		ids, ones := make([]int32, 17), make([]float32, 16)
		for i := range ids {
			ids[i] = int32(i)
		}
		for i := range ones {
			ones[i] = 1
		}
		transformer.Put(dev, entry, ids[:16], ids[1:], ones)
		return nil
	})
}
