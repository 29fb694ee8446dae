package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
)

// build makes a device for every rank, the model on them, and the runners that train it.
func (t *trainer) build(ctx context.Context, training, heldout []byte) error {
	devs := make([]kernels.Compute, t.opts.ranks)
	for rank := range devs {
		dev, err := kernels.NewHost(kernels.HostConfig{Alone: t.opts.ranks == 1})
		if err != nil {
			return err
		}
		t.devs, devs[rank] = append(t.devs, dev), dev
	}
	var err error
	if t.model, err = transformer.NewOn(t.opts.model, places(t.opts.placement, devs)...); err != nil {
		return fmt.Errorf("%w: take a smaller -width or fewer -layers", err)
	}
	t.drawn = &corpus.Drawn{Text: training, Longest: t.opts.sequence, Seed: t.opts.model.Seed}
	t.tiled = &corpus.Tiled{Size: len(heldout) - 1, Length: t.opts.sequence, Most: max(mostHeldOut/t.opts.sequence, 1)}
	for _, dev := range t.devs {
		if t.opts.priced != nil { // whatever the file says of the model that it was measured with
			t.opts.priced.Resident = append(t.opts.priced.Resident, dev.Live())
		}
		t.train = append(t.train, &source{dev: dev, text: training, windows: t.drawn})
		t.heldout = append(t.heldout, &source{dev: dev, text: heldout, windows: t.tiled})
	}
	cfg := t.config(t.model, devs, t.metrics.Hooks)
	if t.opts.unplanned {
		t.unplanned = errors.New("-unplanned")
		t.ranks, err = newRunners(cfg)
		return err
	}
	return t.plan(ctx, cfg)
}

// places returns the device of every stage, by copy of the model, where devs are those
// of the ranks.
func places(p schedule.Placement, devs []kernels.Compute) [][]kernels.Compute {
	places := make([][]kernels.Compute, max(p.Copies, 1))
	for stage, rank := range p.Rank {
		copied := stage / p.Depth()
		places[copied] = append(places[copied], devs[rank])
	}
	return places
}

// lossDefs are those of the model.
var lossDefs = []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}}

// config says what the ranks run.
func (t *trainer) config(model *transformer.Model, devs []kernels.Compute, hooks func(rank int) runner.Hooks) runner.GroupConfig[kernels.Buffer] {
	o := t.opts
	cfg := runner.GroupConfig[kernels.Buffer]{
		Capacity: o.capacity,
		Copy: func(from, to int, b kernels.Buffer) (kernels.Buffer, error) {
			return kernels.Transfer(devs[to], devs[from], b)
		},
		Stall: -1, // a large model may take long over an action; what can never go on ends at once
	}
	for rank, dev := range devs {
		cfg.Ranks = append(cfg.Ranks, runner.Config[kernels.Buffer]{
			Stages: model.Stages(), Space: dev, Gradients: dev, Placement: o.placement,
			Plan: o.rule, Group: o.group, Cap: o.cap, Slices: o.slices, Costs: o.priced,
			Parts: transformer.Parts, Losses: lossDefs, Hooks: hooks(rank), Seed: o.model.Seed, FirstStep: int64(t.done),
		})
	}
	return cfg
}

// Close ends the runners, the model and the devices.
func (t *trainer) Close() error {
	var faults []error
	if t.ranks != nil {
		faults = append(faults, t.ranks.Close())
	}
	if t.model != nil {
		faults = append(faults, t.model.Close())
	}
	for _, dev := range t.devs {
		faults = append(faults, dev.Close())
	}
	return errors.Join(faults...)
}
