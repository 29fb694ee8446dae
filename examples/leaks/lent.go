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
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
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
	w, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	ways := []*cached{
		{result: lent{Name: "kept"}},
		{result: lent{Name: "cleared by hand"}, clears: true},
		{result: lent{Name: "cleared, segments expand"}, clears: true, expandable: true},
	}
	for _, c := range ways {
		if err := c.open(w.step); err != nil {
			return nil, fmt.Errorf("%s: %w", c.result.Name, err)
		}
		defer func() { err = errors.Join(err, c.device.dev.Close()) }()
	}
	for range 1 + t.rounds { // the first round touches new pages
		if err := w.round(ctx); err != nil {
			return nil, err
		}
		for _, c := range ways {
			if err := c.round(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.result.Name, err)
			}
		}
	}
	step, copying := median(w.steps[1:]), median(w.copies[1:])
	for _, c := range ways {
		c.result.Memory = copying + median(c.took[1:])
		c.result.Step = step + c.result.Memory
		all = append(all, c.result)
	}
	w.result.Memory = median(w.returns[1:])
	w.result.Step = step + w.result.Memory
	return append(all, w.result), nil
}

// weir runs real steps and lends real memory.
type weir struct {
	*trainee
	result lent
	dev    *kernels.Host
	step   *recording
	model  *transformer.Model
	run    *runner.Runner[kernels.Buffer]
	file   store
	// By round: the time of a step, the time to release and restore memory, and the part of
	// that for writing and reading weights and moments, which is the same for all methods.
	steps, returns, copies []time.Duration
}

// open makes the model and its runner.
func (t *trainee) open(ctx context.Context) (w *weir, err error) {
	w = &weir{trainee: t, result: lent{Name: "Weir"}}
	if w.dev, err = kernels.NewHost(kernels.HostConfig{Capacity: 1 << 30}); err != nil {
		return nil, err
	}
	w.step, err = t.record(ctx, w.dev)
	if err == nil {
		w.model, err = transformer.New(w.dev, t.Config, t.Layers)
	}
	if err == nil {
		cfg := t.config(w.model, w.dev)
		cfg.Memory.Profile = w.step.profile
		w.run, err = runner.New(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, w.dev.Close())
	}
	return w, nil
}

func (w *weir) close() error { return errors.Join(w.run.Close(), w.model.Close(), w.dev.Close()) }

// round trains a step, releases the memory, and restores it.
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
	if err := w.model.Release(&w.file, memory.Scopes()...); err != nil {
		return err
	}
	w.result.Allocated, w.result.Reserved = 0, 0
	for _, scope := range memory.Scopes() {
		stats := w.dev.Scope(scope)
		w.result.Allocated += stats.Live
		w.result.Reserved += stats.Reserved
	}
	if err := w.model.Restore(&w.file); err != nil {
		return err
	}
	w.steps = append(w.steps, stepped.Sub(begin))
	w.returns = append(w.returns, time.Since(stepped))
	w.copies = append(w.copies, w.file.took)
	return nil
}

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

// recording is the memory of the model and of a step, from a dry run.
type recording struct {
	profile   *layout.Profile      // from which Weir plans the memory of a step
	resident  []int64              // sizes of weights, gradients and moments
	events    []kernels.AllocEvent // of a step
	copies    map[uint64]bool      // buffers that are copies of weights, by serial number
	workspace int64                // size of the largest workspace of the step, in bytes
}

// record runs a step on a Null device.
func (t *trainee) record(ctx context.Context, host *kernels.Host) (r *recording, err error) {
	dev := kernels.NewNull(host)
	defer func() { err = errors.Join(err, dev.Close()) }()
	model, err := transformer.New(dev, t.Config, t.Layers)
	if err != nil {
		return nil, err
	}
	r = &recording{copies: map[uint64]bool{}}
	for _, e := range dev.Record() {
		if e.Alloc && e.Class == memory.Resident {
			r.resident = append(r.resident, e.Bytes)
		}
	}
	cfg := t.config(model, dev)
	if r.profile, err = record.Stages(ctx, cfg, record.Shape[kernels.Buffer]{Name: "whole", Source: t.source(dev)}); err != nil {
		return nil, err
	}
	for i, inner := range cfg.Stages {
		cfg.Stages[i] = &marking{inner, dev, r.copies}
	}
	run, err := runner.New(cfg)
	if err != nil {
		return nil, err
	}
	dev.Forget()
	if _, err := run.Step(ctx, t.microbatches, t.source(dev)); err != nil {
		return nil, err
	}
	if n := dev.Dropped(); n > 0 {
		return nil, fmt.Errorf("a step has %d events more than a dry run keeps: use fewer microbatches", n)
	}
	r.events = slices.Clone(dev.Record())
	for _, e := range r.events {
		if e.Class == memory.Workspace {
			r.workspace = max(r.workspace, e.Bytes)
		}
	}
	return r, errors.Join(run.Close(), model.Close())
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

func (t *trainee) config(model *transformer.Model, dev kernels.Compute) runner.Config[kernels.Buffer] {
	return runner.Config[kernels.Buffer]{Stages: model.Stages(), Spaces: runner.Spaces(dev)}
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
