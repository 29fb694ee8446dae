package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/internal/report"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// trainee is the model whose memory is lent out between two steps.
type trainee struct {
	transformer.Config
	tokens       int // of a microbatch
	microbatches int
	rounds       int // that are measured
}

// lendSize is what the program runs.
var lendSize = trainee{
	Config: transformer.Config{
		Vocabulary: 256, Width: 256, Layers: 4, Heads: 4, Context: 128, Seed: 1,
		FP8: fp8.DelayedScaling{Format: fp8.Hybrid},
	},
	tokens: 128, microbatches: 64, rounds: 3,
}

// lent is what lending memory comes to with one way to manage it. Sizes are bytes.
type lent struct {
	Name      string        `json:"name"`
	Allocated int64         `json:"allocated"` // while it is lent
	Reserved  int64         `json:"reserved"`  // likewise
	Step      time.Duration `json:"step_ns"`   // with what follows
	Memory    time.Duration `json:"memory_ns"` // to hand memory back and to take it again
}

// lending measures all ways. The arithmetic is that of one run; what differs is added to it.
func (t *trainee) lending(ctx context.Context) ([]lent, error) {
	weir, copying, err := t.weir(ctx)
	if err != nil {
		return nil, err
	}
	resident, events, err := t.record(ctx)
	if err != nil {
		return nil, err
	}
	var all []lent
	for _, way := range []struct {
		name               string
		expandable, clears bool
	}{
		{"kept", false, false},
		{"cleared by hand", false, true},
		{"cleared, segments expand", true, true},
	} {
		l, err := t.cached(newCached(resident, way.expandable, way.clears), events)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		l.Name = way.name
		l.Memory += copying
		l.Step = weir.Step - weir.Memory + l.Memory
		all = append(all, l)
	}
	return append(all, weir), nil
}

// weir runs and lends for real. Copying is the part of the time that went into writing and
// reading weights and moments, which is the same for all.
func (t *trainee) weir(ctx context.Context) (l lent, copying time.Duration, err error) {
	l.Name = "Weir"
	dev, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 30})
	if err != nil {
		return l, 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	templates, err := t.templates(ctx, dev)
	if err != nil {
		return l, 0, err
	}
	model, err := transformer.New(dev, t.Config, t.Layers)
	if err != nil {
		return l, 0, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	run, err := runner.New(t.config(model, dev, templates))
	if err != nil {
		return l, 0, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()

	var steps, returns, copies []time.Duration
	file := &store{}
	for range 1 + t.rounds { // the first one meets pages that nobody had
		file.took = 0
		begin := time.Now()
		result, err := run.Step(ctx, t.microbatches, t.source(dev))
		if err != nil {
			return l, 0, err
		}
		if _, err := model.RollScales(ctx, nil); err != nil {
			return l, 0, err
		}
		if err := model.Update(transformer.AdamW{LearningRate: 1e-3}, result, 1); err != nil {
			return l, 0, err
		}
		stepped := time.Now()
		if err := model.Release(file, scopes...); err != nil {
			return l, 0, err
		}
		l.Allocated, l.Reserved = 0, 0
		for _, scope := range scopes {
			stats := dev.Scope(scope)
			l.Allocated += stats.Live
			l.Reserved += stats.Reserved
		}
		if err := model.Restore(file); err != nil {
			return l, 0, err
		}
		steps, returns, copies = append(steps, stepped.Sub(begin)), append(returns, time.Since(stepped)), append(copies, file.took)
	}
	l.Memory = median(returns[1:])
	l.Step = median(steps[1:]) + l.Memory
	return l, median(copies[1:]), nil
}

// scopes is all that a device has.
var scopes = []memory.Scope{memory.StepScope, memory.Weights, memory.Gradients, memory.Optimizer, memory.Metadata}

// store is memory that is somebody else's, to which bytes are copied and from which they
// come back. It counts the time.
type store struct {
	bytes.Buffer
	took time.Duration
}

func (s *store) Write(p []byte) (n int, err error) {
	begin := time.Now()
	defer func() { s.took += time.Since(begin) }()
	return s.Buffer.Write(p)
}

func (s *store) Read(p []byte) (n int, err error) {
	begin := time.Now()
	defer func() { s.took += time.Since(begin) }()
	return s.Buffer.Read(p)
}

// cached replays what a step allocates on a simulated allocator, and does on the host what
// that asks of its device.
func (t *trainee) cached(c *cached, events []event) (l lent, err error) {
	var asked [][]snapshot.Entry
	if err := c.back(); err != nil {
		return l, err
	}
	for range 1 + t.rounds {
		if err := errors.Join(c.step(events), c.away()); err != nil {
			return l, err
		}
		stats := c.allocator.Stats()
		l.Allocated, l.Reserved = stats.Allocated.Current, stats.Reserved.Current
		if err := c.back(); err != nil {
			return l, err
		}
		asked = append(asked, c.asked())
	}
	device, err := newDriver(c.allocator.Stats().Reserved.Peak)
	if err != nil {
		return l, err
	}
	var took []time.Duration
	for _, history := range asked {
		d, err := device.run(history)
		if err != nil {
			return l, errors.Join(err, device.dev.Close())
		}
		took = append(took, d)
	}
	l.Memory = median(took[1:])
	return l, device.dev.Close()
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// record returns what the model has for good, and the births and ends of a step, of a dry
// run.
func (t *trainee) record(ctx context.Context) (resident []int64, events []event, err error) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 30})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	dev := kernels.NewNull(host)
	defer func() { err = errors.Join(err, dev.Close()) }()
	model, err := transformer.New(dev, t.Config, t.Layers)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range dev.Record() {
		if e.Alloc && e.Class == memory.Resident {
			resident = append(resident, e.Bytes)
		}
	}
	cfg := t.config(model, dev, nil)
	copies := map[uint64]bool{}
	for i, inner := range cfg.Stages {
		cfg.Stages[i] = &marking{inner, dev, copies}
	}
	run, err := runner.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	dev.Forget()
	if _, err := run.Step(ctx, t.microbatches, t.source(dev)); err != nil {
		return nil, nil, err
	}
	if n := dev.Dropped(); n > 0 {
		return nil, nil, fmt.Errorf("a step has %d events more than a dry run keeps: take fewer microbatches", n)
	}
	var largest int64
	for _, e := range dev.Record() {
		events = append(events, event{Event: e, copied: copies[e.Serial]})
		if e.Class == memory.Workspace {
			largest = max(largest, e.Bytes)
		}
	}
	for i := range events {
		events[i].largest = largest
	}
	return resident, events, errors.Join(run.Close(), model.Close())
}

// marking is a stage whose copies of weights are marked in a dry run.
type marking struct {
	stage
	dev    *kernels.Null
	copies map[uint64]bool // by serial number
}

// Unwrap returns the stage.
func (m *marking) Unwrap() stage { return m.stage }

// QuantizeWeights makes the copies and marks them.
func (m *marking) QuantizeWeights(ctx context.Context, call *batchctx.Quantization[kernels.Buffer], forward, backward []kernels.Buffer) error {
	inner, ok := stages.As[stages.Quantizer[kernels.Buffer]](m.stage)
	if !ok {
		return errors.ErrUnsupported
	}
	err := inner.QuantizeWeights(ctx, call, forward, backward)
	for _, b := range slices.Concat(forward, backward) {
		if serial, live := m.dev.Serial(b); live {
			m.copies[serial] = true
		}
	}
	return err
}

// templates are what the stages allocate, so that the arena is laid out before a step.
func (t *trainee) templates(ctx context.Context, host *kernels.Host) (templates *layout.Templates, err error) {
	dev := kernels.NewNull(host)
	defer func() { err = errors.Join(err, dev.Close()) }()
	model, err := transformer.New(dev, t.Config, t.Layers)
	if err != nil {
		return nil, err
	}
	return runner.Record(ctx, runner.GroupConfig[kernels.Buffer]{Ranks: []runner.Config[kernels.Buffer]{t.config(model, dev, nil)}},
		runner.Shape[kernels.Buffer]{Name: "whole", Sources: []runner.Source[kernels.Buffer]{t.source(dev)}})
}

func (t *trainee) config(model *transformer.Model, dev kernels.Compute, templates *layout.Templates) runner.Config[kernels.Buffer] {
	return runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Space: dev, Gradients: dev, Parts: transformer.Parts, Templates: templates,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	}
}

// source gives microbatches of as many tokens as there are to one.
func (t *trainee) source(dev kernels.Compute) runner.Source[kernels.Buffer] {
	return runner.SourceFunc[kernels.Buffer](func(_ context.Context, entry *batchctx.Entry[kernels.Buffer]) error {
		return put(dev, entry, t.tokens, t.Vocabulary)
	})
}

// lendingTable prints the ways under one another, as the thread does that they are from.
func (t *trainee) lendingTable(w io.Writer, all []lent) error {
	fmt.Fprintf(w, "A step of %d microbatches of %d tokens in FP8 (%v), width %d, %d blocks; then all memory is lent out, and taken back:\n\n",
		t.microbatches, t.tokens, t.FP8, t.Width, t.Layers)
	fastest := slices.MinFunc(all, func(a, b lent) int { return int(a.Step - b.Step) })
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tab, "copies of weights\tallocated\treserved\tstep\tof it memory\tto the fastest")
	for _, l := range all {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%.3f s\t%.1f ms\t%.3f\n", l.Name, report.Size(l.Allocated), report.Size(l.Reserved),
			l.Step.Seconds(), float64(l.Memory.Microseconds())/1000, float64(l.Step)/float64(fastest.Step))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe arithmetic is of one run, Weir's; the caching allocator is simulated, and what it asks of its device is done and timed.")
	return err
}
