package main

import (
	"context"
	"errors"
	"io"
	"iter"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// size is the configuration of the model.
var size = transformer.Config{Vocabulary: 128, Width: 64, Layers: 2, Heads: 4, Context: 48, Seed: 1}

// lines are the training text, one line per microbatch.
var lines = [...]string{
	"a weir is a low dam: the water keeps flowing",
	"the water keeps flowing, and the level is flat",
	"the level is flat, and nothing is kept for long",
	"nothing is kept for long, and all of it is used",
}

// trainer is a model being trained, on its device.
type trainer struct {
	dev   *kernels.Host
	model *transformer.Model
	run   *runner.Runner[kernels.Buffer]
}

func newTrainer(recipe fp8.Recipe) (t *trainer, err error) {
	cfg := size
	cfg.FP8 = recipe
	t = &trainer{}
	if t.dev, err = kernels.NewHost(kernels.HostConfig{Capacity: 32 << 20}); err != nil {
		return nil, err
	}
	if t.model, err = transformer.New(t.dev, cfg, 2); err != nil {
		return nil, errors.Join(err, t.dev.Close())
	}
	t.run, err = runner.New(runner.Config[kernels.Buffer]{
		Stages: t.model.Stages(), Spaces: runner.Spaces(t.dev),
	})
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// close releases the trainer's runner, model and device.
func (t *trainer) close() error {
	var err error
	if t.run != nil {
		err = t.run.Close()
	}
	return errors.Join(err, t.model.Close(), t.dev.Close())
}

// step trains on every line once and returns the loss before the update, in nats per byte.
func (t *trainer) step(ctx context.Context) (float64, error) {
	result, err := t.run.Step(ctx, len(lines), t)
	if err != nil {
		return 0, err
	}
	if _, err := t.model.RollScales(ctx, nil); err != nil {
		return 0, err
	}
	return result.Loss(transformer.LossName), t.model.Update(transformer.AdamW{LearningRate: 0.003}, result, 1)
}

// Next makes the entry of a line, in which every byte predicts the next one.
func (t *trainer) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	line := lines[entry.Index()]
	n := len(line) - 1
	ids, ones := make([]int32, len(line)), make([]float32, n)
	for i := range line {
		ids[i] = int32(line[i])
	}
	for i := range ones {
		ones[i] = 1
	}
	transformer.Put(t.dev, entry, ids[:n], ids[1:], ones)
	return nil
}

// remaining is the memory of the trainer between steps, in bytes.
type remaining struct{ live, reserved int64 }

// lend returns all memory to the system, writes the contents that are needed later to w, and
// returns the remaining memory.
func (t *trainer) lend(w io.Writer) (left remaining, err error) {
	if err := t.model.Release(w, memory.Scopes()...); err != nil {
		return left, err
	}
	for _, scope := range memory.Scopes() {
		stats := t.dev.Scope(scope)
		left.live += stats.Live
		left.reserved += stats.Reserved
	}
	return left, nil
}

// weights iterates over the model's weights, in float32 or in an encoding.
func (t *trainer) weights(encoding *kernels.Encoding) iter.Seq2[transformer.Weight, error] {
	if encoding != nil {
		return t.model.QuantizedWeights(*encoding)
	}
	return func(yield func(transformer.Weight, error) bool) {
		for w := range t.model.Weights() {
			if !yield(w, nil) {
				return
			}
		}
	}
}
