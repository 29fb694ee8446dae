package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
)

// plan makes a runner that plans the memory of every step in advance. It determines the
// allocations of the stages in a dry run of the same model on Null devices, for the longest and
// the shortest possible microbatch, and for one half as long as the longest; sizes in between are
// interpolated. Unless -keep-logits is given, plan also chooses whether logits are kept. If a
// step has too many buffers to be planned, and -budget and -offload do not require a plan, its
// memory is dynamic, and t.unplanned has the reason.
func (t *trainer) plan(ctx context.Context, cfg runner.Config[kernels.Buffer]) (err error) {
	nulls := make([]kernels.Compute, t.opts.Ranks) // of one replica, because all are equal
	for rank := range nulls {
		null := kernels.NewNull(t.devs[0]) // all devices are equal
		defer func() { err = errors.Join(err, null.Close()) }()
		nulls[rank] = null
	}
	alone := t.opts.model
	alone.Replicas, alone.Shard = 0, 0
	model, err := transformer.NewOn(alone, t.places(nulls)...)
	if err != nil {
		return err
	}
	dry := t.config(model, nulls)
	dry.Memory.Budget = t.opts.Budget
	shapes := []record.Shape[kernels.Buffer]{
		shape(nulls, "longest", t.opts.longest()), shape(nulls, "half as long", (t.opts.longest()+1)/2), shape(nulls, "shortest", 1),
	}
	microbatches, train := t.opts.Microbatches, t.train
	if t.packing.packer != nil {
		microbatches, train = len(t.packing.next.packs), t.packing.next.source
	}
	most, audit := microbatches, t.nextAudit()
	if audit > 0 { // a replica may have one microbatch more
		most = (microbatches/t.opts.Replicas + 1) * t.opts.Replicas
	}
	t.profile, err = model.Record(ctx, dry, most, shapes...)
	if err == nil && t.opts.emitProfile != "" { // with whole gradients and gathered weights: for every shard level
		dry.Replicas = runner.Replicas{Count: 2, Shard: 3}
		t.profile, err = record.Stages(ctx, dry, shapes...)
	}
	if err != nil {
		return err
	}
	t.model.KeepLogits = model.KeepLogits
	planned := cfg
	planned.Memory = runner.Memory{Profile: t.profile, Budget: t.opts.Budget, Offload: t.opts.RunnerOffload()}
	if t.run, err = runner.New(planned); err != nil {
		return err
	}
	if t.opts.emitProfile != "" && t.opts.Budget == 0 {
		return nil // no step is run
	}
	prepared, err := t.run.Prepare(ctx, microbatches, train)
	t.layout, _ = prepared.(*layout.Memory)
	if err == nil && audit > int64(t.session.Done) {
		err = t.planAudited(ctx, planned, audit, microbatches, train)
	}
	if errors.Is(err, layout.ErrTooLong) && t.opts.Budget == 0 && t.opts.Offload == 0 {
		t.unplanned = err
		t.run, err = runner.New(cfg)
	}
	return err
}

// nextAudit returns the number of the next step in which -audit repeats a microbatch, or 0 if the run has none.
func (t *trainer) nextAudit() int64 {
	done, every := t.session.Done, t.opts.Audit
	if every == 0 || done+every-done%every > t.opts.steps {
		return 0
	}
	return int64(done + every - done%every - 1)
}

// planAudited plans the memory of an audited step, in which replicas have one more microbatch, and keeps its
// layout if this is higher than the layout of the first step.
func (t *trainer) planAudited(ctx context.Context, cfg runner.Config[kernels.Buffer], step int64, microbatches int, source runner.Source[kernels.Buffer]) error {
	cfg.FirstStep = step
	run, err := runner.New(cfg)
	if err != nil {
		return err
	}
	prepared, err := run.Prepare(ctx, microbatches, source)
	if audited, ok := prepared.(*layout.Memory); ok && t.layout != nil && audited.Height() > t.layout.Height() {
		t.layout = audited
	}
	return errors.Join(err, run.Close())
}

// shape returns a shape whose microbatches have the given length in tokens.
func shape(devs []kernels.Compute, name string, length int) record.Shape[kernels.Buffer] {
	var sources []runner.Source[kernels.Buffer]
	for _, dev := range devs {
		sources = append(sources, &source{dev, corpus.Reader{Sequence: corpus.Bytes(make([]byte, length+1)), Windows: &corpus.Tiled{Size: length, Length: length, Most: 1}}, nil})
	}
	return record.Shape[kernels.Buffer]{Name: fmt.Sprintf("%s, %d tokens", name, length), Source: runner.PerRank(sources...)}
}
