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

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
)

// trainer is a model on its ranks, the runners that train it, and the two parts of
// the text.
type trainer struct {
	opts  *options
	devs  []*kernels.Host // by rank
	model *transformer.Model
	ranks runners

	train, heldout []runner.Source[kernels.Buffer] // by rank
	drawn          *corpus.Drawn                   // windows of train
	tiled          *corpus.Tiled                   // windows of heldout
	done           int                             // steps that the weights have seen
	templates      *layout.Templates               // what stages allocate; nil where memory is not planned
	memory         *layout.Plan                    // of a step; nil where it is not planned
	unplanned      error                           // why it is not
	peaks          []memory.ByClass                // by rank: what was live at the peak of all steps and evaluations
	resident       []int64                         // by rank: bytes of weights, gradients and moments
	met            fp8.Report                      // what tensors in FP8 met, of all steps
	heap           runtime.MemStats
}

// outcome is what a training step came to.
type outcome struct {
	loss        float64 // nats per byte
	bytes       int64   // with a weight
	norm, rate  float64
	time        time.Duration
	allocations uint64     // on the Go heap
	met         fp8.Report // what tensors in FP8 met
	*runner.Result
}

// newTrainer builds the model and the runners. The caller owns the trainer and ends
// it with Close.
func newTrainer(ctx context.Context, opts *options, training, heldout []byte, first int, hooks func(rank int) runner.Hooks) (t *trainer, err error) {
	t = &trainer{
		opts: opts, done: first, peaks: make([]memory.ByClass, opts.ranks),
		drawn: &corpus.Drawn{Text: training, Longest: opts.sequence, Seed: opts.model.Seed},
		tiled: &corpus.Tiled{Size: len(heldout) - 1, Length: opts.sequence, Most: max(mostHeldOut/opts.sequence, 1)},
	}
	defer func() {
		if err != nil {
			t, err = nil, errors.Join(err, t.Close())
		}
	}()
	for range opts.ranks {
		dev, err := kernels.NewHost(kernels.HostConfig{Alone: opts.ranks == 1})
		if err != nil {
			return t, err
		}
		t.devs = append(t.devs, dev)
	}
	devs := make([]kernels.Compute, len(t.devs))
	for rank, dev := range t.devs {
		devs[rank] = dev
	}
	if t.model, err = transformer.NewOn(opts.model, places(opts.placement, devs)...); err != nil {
		return t, fmt.Errorf("%w: take a smaller -width or fewer -layers", err)
	}
	for _, dev := range t.devs {
		t.resident = append(t.resident, dev.Live())
	}
	if opts.priced != nil {
		opts.priced.Resident = t.resident // whatever the file says of the model that it was measured with
	}
	cfg := t.configure(training, heldout, hooks)
	if opts.unplanned {
		t.unplanned = errors.New("-unplanned")
		t.ranks, err = newRunners(cfg)
	} else {
		t.ranks, err = t.newPlanned(ctx, cfg)
	}
	return t, err
}

// configure makes the sources of every rank, and says what the ranks run.
func (t *trainer) configure(training, heldout []byte, hooks func(rank int) runner.Hooks) runner.GroupConfig[kernels.Buffer] {
	opts := t.opts
	cfg := runner.GroupConfig[kernels.Buffer]{
		Capacity: opts.capacity,
		Copy: func(from, to int, b kernels.Buffer) (kernels.Buffer, error) {
			return kernels.Transfer(t.devs[to], t.devs[from], b)
		},
		Stall: -1, // a large model may take long over an action; what can never go on ends at once
	}
	for rank, dev := range t.devs {
		t.train = append(t.train, &source{dev: dev, text: training, windows: t.drawn})
		t.heldout = append(t.heldout, &source{dev: dev, text: heldout, windows: t.tiled})
		cfg.Ranks = append(cfg.Ranks, runner.Config[kernels.Buffer]{
			Stages: t.model.Stages(), Space: dev, Gradients: dev, Placement: opts.placement,
			Plan: opts.rule, Group: opts.group, Cap: opts.cap, Slices: opts.slices, Costs: opts.priced,
			Parts:  transformer.Parts,
			Losses: lossDefs,
			Hooks:  hooks(rank), Seed: opts.model.Seed, FirstStep: int64(t.done),
		})
	}
	return cfg
}

// lossDefs are those of the model.
var lossDefs = []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}}

// newRunners makes the runners.
func newRunners(cfg runner.GroupConfig[kernels.Buffer]) (runners, error) {
	if len(cfg.Ranks) == 1 {
		only, err := runner.New(cfg.Ranks[0])
		if err != nil {
			return nil, err
		}
		return alone{only}, nil
	}
	group, err := runner.NewGroup(cfg)
	if err != nil {
		return nil, err
	}
	return group, nil
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

// step trains on one step's microbatches and updates the weights.
func (t *trainer) step(ctx context.Context) (outcome, error) {
	begin := time.Now()
	t.drawn.Step = int64(t.done)
	runtime.ReadMemStats(&t.heap)
	before := t.heap.Mallocs
	result, err := t.ranks.Step(ctx, t.opts.microbatches, t.train)
	if err != nil {
		return outcome{}, err
	}
	runtime.ReadMemStats(&t.heap)
	o := outcome{
		Result: result, allocations: t.heap.Mallocs - before,
		loss: result.Losses[0].Value, bytes: int64(math.Round(result.Losses[0].Weight)), norm: result.GradNorm,
	}
	switch result.Outcome {
	case loss.Skipped:
		return outcome{}, fmt.Errorf("step %d: the loss or its gradient is not a number (first in microbatch %d): start again with a lower -lr",
			t.done+1, result.FirstNonFinite)
	case loss.Empty:
		return outcome{}, fmt.Errorf("step %d: no byte of it had a next one: give more text", t.done+1)
	}
	if o.met, err = t.roll(ctx); err != nil {
		return outcome{}, err
	}
	adam := t.opts.optimizer
	adam.LearningRate = rateAt(adam.LearningRate, t.done, t.opts.warmup, t.opts.steps)
	if err := t.model.Update(adam, result, t.opts.clip); err != nil {
		return outcome{}, err
	}
	t.done++
	t.rise(result)
	o.rate, o.time = float64(adam.LearningRate), time.Since(begin)
	return o, nil
}

// rise takes the peaks of a step or an evaluation into those of the run.
func (t *trainer) rise(result *runner.Result) {
	for rank := range result.Ranks {
		if one := &result.Ranks[rank]; one.Peak > t.peaks[rank].Total() {
			t.peaks[rank] = one.PeakClasses
		}
	}
}

// fullest returns the rank whose peak was highest.
func (t *trainer) fullest() (fullest int) {
	for rank := range t.peaks {
		if t.peaks[rank].Total() > t.peaks[fullest].Total() {
			fullest = rank
		}
	}
	return fullest
}

// modelBytes returns the bytes of weights, gradients and moments on all ranks.
func (t *trainer) modelBytes() (bytes int64) {
	for _, n := range t.resident {
		bytes += n
	}
	return bytes
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
