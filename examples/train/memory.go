package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/units"
)

// template finds out what the stages allocate: in a dry run of the same model on Null
// devices, for the longest and for the shortest microbatch that there can be, and
// for one half as long. Sizes in between lie between.
func (t *trainer) template(ctx context.Context, cfg runner.GroupConfig[kernels.Buffer]) (templates *layout.Templates, err error) {
	nulls, devs := make([]*kernels.Null, len(t.devs)), make([]kernels.Compute, len(t.devs))
	for rank, dev := range t.devs {
		nulls[rank] = kernels.NewNull(dev)
		devs[rank] = nulls[rank]
		defer func() { err = errors.Join(err, nulls[rank].Close()) }()
	}
	model, err := transformer.NewOn(t.opts.model, places(t.opts.placement, devs)...)
	if err != nil {
		return nil, err
	}
	cfg.Copy = func(from, to int, b kernels.Buffer) (kernels.Buffer, error) {
		return kernels.Transfer(nulls[to], nulls[from], b)
	}
	cfg.Ranks = slices.Clone(cfg.Ranks)
	for rank := range cfg.Ranks {
		c := &cfg.Ranks[rank]
		c.Stages, c.Space, c.Gradients, c.Hooks = model.Stages(), devs[rank], devs[rank], runner.Hooks{}
	}
	return runner.Record(ctx, cfg,
		t.shape(devs, "longest", t.opts.sequence), t.shape(devs, "half as long", (t.opts.sequence+1)/2), t.shape(devs, "shortest", 1))
}

// shape is microbatches of a length.
func (t *trainer) shape(devs []kernels.Compute, name string, length int) runner.Shape[kernels.Buffer] {
	s := runner.Shape[kernels.Buffer]{Name: fmt.Sprintf("%s, %d bytes", name, length)}
	text := make([]byte, length+1)
	for _, dev := range devs {
		s.Sources = append(s.Sources, &source{dev: dev, text: text, windows: &corpus.Tiled{Size: length, Length: length, Most: 1}})
	}
	return s
}

// newPlanned makes runners that plan the memory of every step before it. Where a step
// keeps so much that it cannot be planned, memory comes as it is asked for; why is then
// in t.unplanned.
func (t *trainer) newPlanned(ctx context.Context, cfg runner.GroupConfig[kernels.Buffer]) (runners, error) {
	var err error
	if t.templates, err = t.template(ctx, cfg); err != nil {
		return nil, err
	}
	dynamic := slices.Clone(cfg.Ranks)
	for rank := range cfg.Ranks {
		cfg.Ranks[rank].Templates, cfg.Ranks[rank].Budget = t.templates, t.opts.budget
	}
	ranks, err := newRunners(cfg)
	if err != nil {
		return nil, err
	}
	t.memory, err = ranks.Prepare(ctx, t.opts.microbatches, t.train)
	if errors.Is(err, layout.ErrTooLong) && t.opts.budget == 0 {
		t.unplanned, cfg.Ranks = err, dynamic
		return newRunners(cfg)
	}
	return ranks, err
}

// memoryPlan is what the plan of memory comes to, of the rank that needs most.
type memoryPlan struct {
	planned, bound int64 // bytes of a step
	resident       int64 // bytes on the same rank
	gap            float64
	how            string
	classes        memory.ByClass // at the peak, the model included
}

// planned returns nil where memory is not planned.
func (t *trainer) planned() *memoryPlan {
	if t.memory == nil {
		return nil
	}
	most := 0
	for rank := range t.memory.Ranks {
		if t.memory.Ranks[rank].Height > t.memory.Ranks[most].Height {
			most = rank
		}
	}
	rank := &t.memory.Ranks[most]
	p := &memoryPlan{
		planned: rank.Height, bound: rank.Bound, resident: t.resident[most], gap: rank.Gap(), how: rank.Sizes, classes: rank.Peak.Classes,
	}
	p.classes[memory.Resident] += t.resident[most]
	return p
}

// introduceMemory says what is set aside for a step.
func (t *training) introduceMemory() {
	p := t.trainer.planned()
	if p == nil {
		fmt.Fprintf(t.out, "memory  not planned: %s\n", oneLine(t.trainer.unplanned))
		return
	}
	onRank := ""
	if t.opts.ranks > 1 {
		onRank = " on the rank that needs most"
	}
	fmt.Fprintf(t.out, "memory  planned: %s bytes for a step%s; at least %s are needed, gap %s; %s\n",
		units.Count(p.planned), onRank, units.Count(p.bound), units.Percent(p.gap), p.how)
}

// emitTemplates writes what the stages of the model allocate to the file.
func emitTemplates(ctx context.Context, opts *options, stdout io.Writer) (err error) {
	if err := errors.Join(opts.validate(), writable("emit-templates", opts.emitTemplates)); err != nil {
		return err
	}
	data, err := readText(ctx, opts.data)
	if err != nil {
		return err
	}
	training, heldout, err := split(data, opts.sequence)
	if err != nil {
		return err
	}
	t, err := newTrainer(ctx, opts, training, heldout, 0, func(int) runner.Hooks { return runner.Hooks{} })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	write := func(w io.Writer) error { return layout.Write(w, t.templates) }
	if opts.emitTemplates == "-" {
		return write(stdout)
	}
	if err := writeFile(opts.emitTemplates, write); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "To plan the memory of a step:  go run ./cmd/weir mem plan %s --templates %s --envelope --ranks %d --stages %d --microbatches %d\n",
		opts.plan, opts.emitTemplates, opts.ranks, opts.placement.Depth(), opts.microbatches)
	return err
}
