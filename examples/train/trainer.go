package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// rules are the plans by the name that -plan takes.
var rules = map[string]schedule.Rule{
	"depth-first":   schedule.DepthFirst,
	"breadth-first": schedule.BreadthFirst,
}

// trainer is a model, the runner that trains it, and the two parts of the text.
type trainer struct {
	opts   *options
	dev    *kernels.Host
	model  *transformer.Model
	runner *runner.Runner[kernels.Buffer]

	train, heldout source
	done           int   // steps that the weights have seen
	peak           int64 // bytes, of all steps and evaluations
	resident       int64 // bytes of the model: weights, gradients and moments
	memory         runtime.MemStats
}

// outcome is what a training step came to.
type outcome struct {
	loss        float64 // nats per byte
	bytes       int64   // with a weight
	norm, rate  float64
	time        time.Duration
	allocations uint64 // on the Go heap
	*runner.Result
}

// newTrainer builds the model and the runner. The caller owns the trainer and
// ends it with Close.
func newTrainer(opts *options, training, heldout []byte, first int, hooks runner.Hooks) (t *trainer, err error) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return nil, err
	}
	t = &trainer{opts: opts, dev: dev, done: first}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.model, err = transformer.New(dev, opts.model, opts.stages); err != nil {
		return t, fmt.Errorf("%w: take a smaller -width or fewer -layers", err)
	}
	t.resident = dev.Live()
	t.runner, err = runner.New(runner.Config[kernels.Buffer]{
		Stages: t.model.Stages(), Space: dev, Gradients: dev,
		Plan: rules[opts.plan], Group: opts.group,
		Parts:  transformer.Parts,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Hooks:  hooks, Seed: opts.model.Seed, FirstStep: int64(first),
	})
	t.train = source{dev: dev, text: training, windows: &drawn{
		text: training, longest: opts.sequence, seed: opts.model.Seed,
	}}
	t.heldout = source{dev: dev, text: heldout, windows: &tiled{
		size: len(heldout) - 1, length: opts.sequence, most: max(mostHeldOut/opts.sequence, 1),
	}}
	return t, err
}

// Close ends the runner, the model and the device.
func (t *trainer) Close() error {
	var faults []error
	if t.runner != nil {
		faults = append(faults, t.runner.Close())
	}
	if t.model != nil {
		faults = append(faults, t.model.Close())
	}
	return errors.Join(append(faults, t.dev.Close())...)
}

// step trains on one step's microbatches and updates the weights.
func (t *trainer) step(ctx context.Context) (outcome, error) {
	begin := time.Now()
	t.train.windows.(*drawn).step = int64(t.done)
	runtime.ReadMemStats(&t.memory)
	before := t.memory.Mallocs
	result, err := t.runner.Step(ctx, t.opts.microbatches, &t.train)
	if err != nil {
		return outcome{}, err
	}
	runtime.ReadMemStats(&t.memory)
	o := outcome{
		Result: result, allocations: t.memory.Mallocs - before,
		loss: result.Losses[0].Value, bytes: int64(math.Round(result.Losses[0].Weight)), norm: result.GradNorm,
	}
	switch result.Outcome {
	case loss.Skipped:
		return outcome{}, fmt.Errorf("step %d: the loss or its gradient is not a number (first in microbatch %d): start again with a lower -lr",
			t.done+1, result.FirstNonFinite)
	case loss.Empty:
		return outcome{}, fmt.Errorf("step %d: no byte of it had a next one: give more text", t.done+1)
	}
	adam := t.opts.optimizer
	adam.LearningRate = rateAt(adam.LearningRate, t.done, t.opts.warmup, t.opts.steps)
	if err := t.model.Update(adam, result, t.opts.clip); err != nil {
		return outcome{}, err
	}
	t.done++
	t.peak = max(t.peak, result.Peak)
	o.rate, o.time = float64(adam.LearningRate), time.Since(begin)
	return o, nil
}

// parameters returns the parameters in canonical order, that of their names.
func (t *trainer) parameters() []*transformer.Parameter {
	all := t.model.Parameters()
	slices.SortFunc(all, func(a, b *transformer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// weights returns how many weights the model has.
func (t *trainer) weights() (n int64) {
	for _, p := range t.model.Parameters() {
		n += int64(p.Weight.N)
	}
	return n
}
