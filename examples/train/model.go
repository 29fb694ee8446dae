package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/transport/tcp"
)

// tooLarge adds a remedy if a model does not fit.
func tooLarge(err error) error {
	if errors.Is(err, memory.ErrOutOfMemory) {
		return fmt.Errorf("%w: use a smaller -width or fewer -layers", err)
	}
	return err
}

// Build makes a device for every rank, a Null one for ranks of other processes, the model on them,
// and the runner that trains it.
func (t *trainer) Build(ctx context.Context) error {
	t.metrics = metrics.New(t.opts.AllRanks())
	devs := make([]kernels.Compute, t.opts.AllRanks())
	t.ranks = make([]job.Device, len(devs))
	for rank := range devs {
		if !t.session.Process.Has(rank) {
			continue
		}
		dev, err := t.open(len(t.devs))
		if err != nil {
			return err
		}
		t.devs, t.ranks[rank] = append(t.devs, dev), dev
	}
	for rank := range devs {
		if !t.session.Process.Has(rank) {
			t.ranks[rank] = kernels.NewNull(t.devs[0]) // its stages are never called
		}
		devs[rank] = t.ranks[rank]
	}
	facts := append(t.opts.Facts("recompute", "evaluate", "unplanned"),
		tcp.Fact{Name: "-budget", Value: fmt.Sprint(t.opts.Budget)}, tcp.Fact{Name: "-keep-logits", Value: fmt.Sprint(t.opts.model.KeepLogits)},
		tcp.Fact{Name: "-data", Value: t.data.sum, Shown: t.data.describe(t.opts)})
	if err := t.session.Process.Join(ctx, t.devs, facts...); err != nil {
		return err
	}
	var train, score []runner.Source[kernels.Buffer]
	var err error
	if t.model, err = transformer.NewOn(t.opts.model, t.places(devs)...); err != nil {
		return tooLarge(err)
	}
	training, heldout, vocabulary := t.data.training, t.data.heldout, t.opts.model.Vocabulary
	t.drawn = t.opts.drawn(training, 0)
	var windows corpus.Windows = t.drawn
	if t.opts.lengths {
		windows = t.data.documents
	}
	t.tiled = &corpus.Tiled{Size: heldout.Len() - 1, Length: t.opts.sequence, Most: max(maxHeldOut/t.opts.sequence, 1)}
	if windows := t.tiled.Count(); windows < t.opts.Replicas {
		return fmt.Errorf("the held-out text is %d windows for %d replicas: give more text, or a smaller -seq", windows, t.opts.Replicas)
	}
	for _, dev := range t.ranks[:t.opts.Ranks] {
		if t.opts.Priced != nil { // the file may be from another model
			t.opts.Priced.Resident = append(t.opts.Priced.Resident, dev.Live())
		}
	}
	for _, dev := range t.devs {
		train = append(train, &source{dev, corpus.Reader{Sequence: training, Windows: windows, Vocabulary: vocabulary}, &t.packing.current})
		score = append(score, &source{dev, corpus.Reader{Sequence: heldout, Windows: t.tiled, Vocabulary: vocabulary}, nil})
	}
	t.train, t.heldout = runner.PerRank(train...), runner.PerRank(score...)
	if t.opts.pack > 0 && t.opts.emitProfile == "" {
		if err := t.newPacking(); err != nil {
			return err
		}
	}
	cfg := t.config(t.model, devs)
	cfg.Hooks = t.session.Process.Hooks(t.metrics)
	if w := t.session.Process; w != nil {
		cfg.Spaces, cfg.Topology = cfg.Spaces[w.First:w.First+w.Count], w.RunnerTopology()
	}
	if t.opts.Unplanned {
		t.unplanned = errors.New("-unplanned")
		t.run, err = runner.New(cfg)
		return err
	}
	return t.plan(ctx, cfg)
}

// places returns the device of every stage, by replica and copy of the model, given the devices of
// the ranks.
func (t *trainer) places(devs []kernels.Compute) (places [][]kernels.Compute) {
	p := t.opts.Placement
	for of := range slices.Chunk(devs, p.Ranks) {
		for stages := range slices.Chunk(p.Rank, p.Depth()) {
			var place []kernels.Compute
			for _, rank := range stages {
				place = append(place, of[rank])
			}
			places = append(places, place)
		}
	}
	return places
}

// lossDefs are the losses of the model.
var lossDefs = []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}}

// config returns the configuration of the ranks.
func (t *trainer) config(model *transformer.Model, devs []kernels.Compute) runner.Config[kernels.Buffer] {
	o := t.opts
	cfg := runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Losses: lossDefs, Seed: o.model.Seed, FirstStep: int64(t.session.Done), Audit: o.Audit,
		Plan: o.RunnerPlan(), Replicas: o.RunnerReplicas(),
		Topology: runner.Topology[kernels.Buffer]{
			Capacity: o.Capacity,
			Sums:     o.Sums,
			Stall:    -1, // an action of a large model may take long; a deadlock ends immediately
		},
	}
	for _, dev := range devs {
		cfg.Spaces = append(cfg.Spaces, dev)
	}
	return cfg
}

// Close closes the runner, the model and the devices.
func (t *trainer) Close() error {
	faults := []error{t.watch.Close()}
	if t.run != nil {
		faults = append(faults, t.run.Close())
	}
	if t.model != nil {
		faults = append(faults, t.model.Close())
	}
	for _, dev := range t.ranks {
		if dev != nil {
			faults = append(faults, dev.Close())
		}
	}
	return errors.Join(append(faults, t.data.Close())...)
}
