package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
)

// plan makes runners that plan the memory of every step before it. What stages allocate is
// found out in a dry run of the same model on Null devices, for the longest and for the
// shortest microbatch that there can be, and for one half as long: sizes in between lie
// between. Where a step keeps so much that it cannot be planned, memory comes as it is asked
// for; why is then in t.unplanned.
func (t *trainer) plan(ctx context.Context, cfg runner.GroupConfig[kernels.Buffer]) (err error) {
	nulls := make([]kernels.Compute, len(t.devs))
	for rank, dev := range t.devs {
		null := kernels.NewNull(dev)
		defer func() { err = errors.Join(err, null.Close()) }()
		nulls[rank] = null
	}
	model, err := transformer.NewOn(t.opts.model, places(t.opts.placement, nulls)...)
	if err != nil {
		return err
	}
	dry := t.config(model, nulls, func(int) runner.Hooks { return runner.Hooks{} })
	if t.templates, err = runner.Record(ctx, dry,
		shape(nulls, "longest", t.opts.sequence), shape(nulls, "half as long", (t.opts.sequence+1)/2), shape(nulls, "shortest", 1)); err != nil {
		return err
	}
	planned := cfg
	planned.Ranks = nil
	for _, rank := range cfg.Ranks {
		rank.Templates, rank.Budget = t.templates, t.opts.budget
		planned.Ranks = append(planned.Ranks, rank)
	}
	if t.ranks, err = newRunners(planned); err != nil {
		return err
	}
	if t.opts.emitTemplates != "" && t.opts.budget == 0 {
		return nil // No step is run.
	}
	t.layout, err = t.ranks.Prepare(ctx, t.opts.microbatches, t.train)
	if errors.Is(err, layout.ErrTooLong) && t.opts.budget == 0 {
		t.unplanned = err
		t.ranks, err = newRunners(cfg)
	}
	return err
}

// shape is microbatches of a length.
func shape(devs []kernels.Compute, name string, length int) runner.Shape[kernels.Buffer] {
	s := runner.Shape[kernels.Buffer]{Name: fmt.Sprintf("%s, %d bytes", name, length)}
	for _, dev := range devs {
		s.Sources = append(s.Sources, &source{dev: dev, text: make([]byte, length+1), windows: &corpus.Tiled{Size: length, Length: length, Most: 1}})
	}
	return s
}
