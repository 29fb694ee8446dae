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
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/units"
)

// trainee is the model whose memory is lent between two steps.
type trainee struct {
	transformer.Config
	tokens       int // per microbatch
	microbatches int
	rounds       int // number of measured rounds
}

// lendSize is the configuration of the program.
var lendSize = trainee{
	Config: transformer.Config{
		Vocabulary: 256, Width: 256, Layers: 4, Heads: 4, Context: 128, Seed: 1,
		FP8: fp8.DelayedScaling{Format: fp8.Hybrid},
	},
	tokens: 128, microbatches: 64, rounds: 9,
}

// lent is the result of lending memory with one method of managing it. Sizes are in bytes.
type lent struct {
	Name      string        `json:"name"`
	Allocated int64         `json:"allocated"` // while it is lent
	Reserved  int64         `json:"reserved"`  // while it is lent
	Step      time.Duration `json:"step_ns"`   // including Memory
	Memory    time.Duration `json:"memory_ns"` // to release memory and to restore it
}

// lending measures all methods in alternation, round by round. All share the time of one
// computation, to which the time of each method's memory calls is added.
func (t *trainee) lending(ctx context.Context) (all []lent, err error) {
	resident, events, err := t.record(ctx)
	if err != nil {
		return nil, err
	}
	var ways []*cached
	defer func() {
		for _, c := range ways {
			err = errors.Join(err, c.device.dev.Close())
		}
	}()
	for _, way := range []struct {
		name               string
		expandable, clears bool
	}{
		{"kept", false, false},
		{"cleared by hand", false, true},
		{"cleared, segments expand", true, true},
	} {
		c, err := newCached(way.name, resident, way.expandable, way.clears)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		ways = append(ways, c)
	}
	w, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for range 1 + t.rounds { // the first round touches new pages
		if err := w.round(ctx); err != nil {
			return nil, err
		}
		for _, c := range ways {
			if err := c.round(events); err != nil {
				return nil, fmt.Errorf("%s: %w", c.lent.Name, err)
			}
		}
	}
	step, copying := median(w.steps[1:]), median(w.copies[1:])
	for _, c := range ways {
		c.lent.Memory = copying + median(c.took[1:])
		c.lent.Step = step + c.lent.Memory
		all = append(all, c.lent)
	}
	w.lent.Memory = median(w.returns[1:])
	w.lent.Step = step + w.lent.Memory
	return append(all, w.lent), nil
}

// weir runs real steps and lends real memory.
type weir struct {
	*trainee
	lent
	dev   *kernels.Host
	model *transformer.Model
	run   *runner.Runner[kernels.Buffer]
	file  store
	// By round: the time of a step, the time to release and restore memory, and the part of
	// that for writing and reading weights and moments, which is the same for all methods.
	steps, returns, copies []time.Duration
}

// open makes the model and its runner.
func (t *trainee) open(ctx context.Context) (w *weir, err error) {
	w = &weir{trainee: t, lent: lent{Name: "Weir"}}
	if w.dev, err = kernels.NewHost(kernels.HostConfig{Capacity: 1 << 30}); err != nil {
		return nil, err
	}
	profile, err := t.profile(ctx, w.dev)
	if err == nil {
		w.model, err = transformer.New(w.dev, t.Config, t.Layers)
	}
	if err == nil {
		w.run, err = runner.New(t.config(w.model, w.dev, profile))
	}
	if err != nil {
		return nil, errors.Join(err, w.dev.Close())
	}
	return w, nil
}

func (w *weir) close() error { return errors.Join(w.run.Close(), w.model.Close(), w.dev.Close()) }

// round trains a step, and lends memory.
func (w *weir) round(ctx context.Context) error {
	w.file.took = 0
	begin := time.Now()
	result, err := w.run.Step(ctx, w.microbatches, w.source(w.dev))
	if err != nil {
		return err
	}
	if _, err := w.model.RollScales(ctx, nil); err != nil {
		return err
	}
	if err := w.model.Update(transformer.AdamW{LearningRate: 1e-3}, result, 1); err != nil {
		return err
	}
	stepped := time.Now()
	if err := w.model.Release(&w.file, scopes...); err != nil {
		return err
	}
	w.Allocated, w.Reserved = 0, 0
	for _, scope := range scopes {
		stats := w.dev.Scope(scope)
		w.Allocated += stats.Live
		w.Reserved += stats.Reserved
	}
	if err := w.model.Restore(&w.file); err != nil {
		return err
	}
	w.steps = append(w.steps, stepped.Sub(begin))
	w.returns = append(w.returns, time.Since(stepped))
	w.copies = append(w.copies, w.file.took)
	return nil
}

// scopes are all scopes of a device.
var scopes = []memory.Scope{memory.StepScope, memory.Weights, memory.Gradients, memory.Optimizer, memory.Metadata}

// store is memory of another program, to which bytes are copied and from which they are read
// back. It measures the time.
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

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// record returns the resident sizes of the model, and the allocations and releases of a step,
// from a dry run.
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
func (m *marking) QuantizeWeights(ctx context.Context, call batchctx.Quantization[kernels.Buffer]) error {
	inner, ok := stages.As[stages.Quantizer[kernels.Buffer]](m.stage)
	if !ok {
		return errors.ErrUnsupported
	}
	before := len(m.dev.Record())
	err := inner.QuantizeWeights(ctx, call)
	for _, e := range m.dev.Record()[before:] {
		m.copies[e.Serial] = m.copies[e.Serial] || e.Alloc && e.Class == memory.FP8
	}
	return err
}

// profile returns the profile of the stages, from which the memory of a step is planned.
func (t *trainee) profile(ctx context.Context, host *kernels.Host) (profile *layout.Profile, err error) {
	dev := kernels.NewNull(host)
	defer func() { err = errors.Join(err, dev.Close()) }()
	model, err := transformer.New(dev, t.Config, t.Layers)
	if err != nil {
		return nil, err
	}
	return runner.Record(ctx, t.config(model, dev, nil),
		runner.Shape[kernels.Buffer]{Name: "whole", Source: t.source(dev)})
}

func (t *trainee) config(model *transformer.Model, dev kernels.Compute, profile *layout.Profile) runner.Config[kernels.Buffer] {
	return runner.Config[kernels.Buffer]{
		Stages: model.Stages(), Spaces: runner.Spaces(dev),
		Memory: runner.Memory{Profile: profile},
	}
}

// source provides microbatches with a fixed number of tokens.
func (t *trainee) source(dev kernels.Compute) runner.Source[kernels.Buffer] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		return put(dev, entry, t.tokens, t.Vocabulary)
	})
}

// lendingTable prints the methods in a table, as in the original thread.
func (t *trainee) lendingTable(w io.Writer, all []lent) error {
	fmt.Fprintf(w, "A step of %d microbatches of %d tokens in FP8 (%v), width %d, %d blocks; then all memory is lent out, and taken back:\n\n",
		t.microbatches, t.tokens, t.FP8, t.Width, t.Layers)
	fastest := slices.MinFunc(all, func(a, b lent) int { return int(a.Step - b.Step) })
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tab, "copies of weights\tallocated\treserved\tstep\tof it memory\tto the fastest")
	for _, l := range all {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%.3f s\t%.1f ms\t%.3f\n", l.Name, units.Size(l.Allocated), units.Size(l.Reserved),
			l.Step.Seconds(), float64(l.Memory.Microseconds())/1000, float64(l.Step)/float64(fastest.Step))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe arithmetic is of one run, Weir's; the caching allocator is simulated, and what it asks of its device is done and timed.")
	return err
}
