package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-ml/weir/internal/arithmetic/fmapeak"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages/transformer"
)

// batch is the number of sequences of a step.
const batch = 4

// measureStep trains for the given time, and at least three steps, after a warm-up step.
func measureStep(j job) (m measurement, err error) {
	t, err := newTrainer(j)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if _, m.FirstLoss, err = t.step(); err != nil {
		return m, err
	}
	var times []time.Duration
	for begin := time.Now(); len(times) < 3 || time.Since(begin).Seconds() < j.Time; {
		var took time.Duration
		if took, m.LastLoss, err = t.step(); err != nil {
			return m, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	tokens := float64(batch * j.Sequence)
	m.Steps, m.Arena = len(times), float64(t.peak)
	m.Best, m.Median = tokens/times[0].Seconds(), tokens/times[len(times)/2].Seconds()
	m.Rate = j.stepFlops() / times[0].Seconds() / 1e9
	return m, nil
}

// trainer is a model and the runner that trains it.
type trainer struct {
	dev    *kernels.Host
	count  int // microbatches of a step
	model  *transformer.Model
	runner *runner.Runner[kernels.Buffer]
	source *source
	peak   int64
	now    func() time.Duration
}

func newTrainer(j job) (t *trainer, err error) {
	t = &trainer{now: j.clock(), count: j.Microbatches}
	c := j.configuration
	c.Sequence *= batch / t.count
	if t.dev, err = j.host(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.model, err = transformer.New(t.dev, c.model(j.KeepLogits), 1); err != nil {
		return t, err
	}
	t.source = newSource(t.dev, c)
	cfg := runner.Config[kernels.Buffer]{Stages: t.model.Stages(), Spaces: runner.Spaces(t.dev), Seed: 1}
	if cfg.Memory.Profile, err = t.record(c); err != nil {
		return t, err
	}
	t.runner, err = runner.New(cfg)
	return t, err
}

// record determines in a dry run the allocations of the stages and whether logits are kept.
func (t *trainer) record(c configuration) (profile *layout.Profile, err error) {
	null := kernels.NewNull(t.dev)
	defer func() { err = errors.Join(err, null.Close()) }()
	model, err := transformer.New(null, c.model(t.model.KeepLogits), 1)
	if err != nil {
		return nil, err
	}
	profile, err = model.Record(context.Background(), runner.Config[kernels.Buffer]{Stages: model.Stages(), Spaces: runner.Spaces(null)},
		t.count, record.Shape[kernels.Buffer]{Name: "all", Source: newSource(null, c)})
	t.model.KeepLogits = model.KeepLogits
	return profile, err
}

// step trains on four sequences and updates the weights.
func (t *trainer) step() (took time.Duration, mean float64, err error) {
	begin := t.now()
	result, err := t.runner.Step(context.Background(), t.count, t.source)
	if err != nil {
		return 0, 0, err
	}
	mean = result.Loss(transformer.LossName)
	t.peak = max(t.peak, result.Peak)
	err = t.model.Update(transformer.AdamW{LearningRate: 3e-4, WeightDecay: 0.1}, result, 1)
	return t.now() - begin, mean, err
}

// Close closes the runner, the model and the device.
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

// peak returns the maximum GFLOP/s that one core reaches at this moment.
func peak() float64 { return max(fmapeak.GFLOPS(16), fmapeak.GFLOPS(8)) }
