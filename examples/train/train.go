package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/rate"
	"github.com/weir-ml/weir/trainer/terminal"
	"github.com/weir-ml/weir/transport"
)

// trainer is a job.Trainer: a model on its ranks, the runner that trains it, the text, and the results
// of the run. The Session runs it.
type trainer struct {
	session *job.Session
	opts    *options
	people  *terminal.Output
	out     io.Writer // the same, with the control characters of names quoted
	json    io.Writer // for -json -

	devs  []job.Local  // of the ranks of this process
	ranks []job.Device // of all ranks
	model *transformer.Model
	run   *runner.Runner[kernels.Buffer]

	data           *data
	train, heldout runner.Source[kernels.Buffer]
	drawn          *corpus.Drawn // windows of train
	tiled          *corpus.Tiled // windows of heldout
	packing        packing       // with -pack

	profile   *layout.Profile // allocations of the stages; nil if memory is not planned
	layout    *layout.Memory  // of a step's memory; nil if it is not planned
	unplanned error           // why the memory is not planned

	metrics  *metrics.Recorder
	progress *terminal.Progress
	line     job.Line    // of the last step
	folder   *job.Folder // nil if another process leads
	watch    job.Watch
}

// train runs the program after its flags were parsed.
func train(ctx context.Context, opts *options, stdout, stderr io.Writer) (err error) {
	people := &terminal.Output{Writer: stdout}
	if opts.JSON == "-" {
		people.Writer = stderr
	}
	t := newTrainer(opts)
	t.people, t.out, t.json = people, terminal.Writer(people), stdout
	defer func() { err = errors.Join(err, t.Close()) }()
	return t.explained(t.session.Run(ctx, t))
}

// newTrainer returns a trainer without outputs.
func newTrainer(opts *options) *trainer {
	t := &trainer{opts: opts, session: &job.Session{
		Options: opts.Options, Deciding: deciding, Free: []string{"steps", "products"}, Older: older, Steps: &opts.steps, Say: say,
	}}
	t.session.Opened = t.opened
	return t
}

// explained adds to an error the files with the live memory of a failed step.
func (t *trainer) explained(err error) error {
	if t.metrics == nil {
		return err
	}
	return t.metrics.Explained(err)
}

// Check checks the flags and reads the text.
func (t *trainer) Check(ctx context.Context) (err error) {
	if err = t.opts.validate(); err == nil {
		t.data, err = readData(ctx, t.opts)
	}
	return err
}

// Begin opens the outputs of the run in the leading process, and begins its metrics and progress.
func (t *trainer) Begin(ctx context.Context) (err error) {
	if !t.session.Process.Leads() {
		t.people.Writer, t.opts.JSON = io.Discard, ""
	} else if t.folder, err = t.opts.OpenFolder(time.Now()); err != nil {
		return err
	} else if t.watch, err = t.opts.OpenWatch(); err != nil {
		return errors.Join(err, t.folder.Discard())
	}
	t.metrics.Begin(t.measured())
	if t.session.Process.Leads() {
		t.introduce()
	}
	t.progress = terminal.NewProgress(t.people, terminal.Columns(t.people.Writer), t.session.First, t.opts.steps)
	return nil
}

// Start evaluates the model before the first step.
func (t *trainer) Start(ctx context.Context) error {
	if err := t.evaluate(ctx); err != nil {
		return err
	}
	return t.folder.Start(t.metrics.LastScore())
}

// Stepped evaluates the model after every -evaluate steps and after the last step, and writes the
// results of the step.
func (t *trainer) Stepped(ctx context.Context) (err error) {
	if every := t.opts.evaluate; t.session.Done == t.opts.steps || every > 0 && t.session.Done%every == 0 {
		if err = t.evaluate(ctx); err == nil {
			t.line.Score = t.metrics.LastScore()
		}
	}
	return errors.Join(t.folder.Step(t.line), t.watch.Step(t.metrics, t.line, t.opts.steps, t.subtitle()), err)
}

// Statuses returns the status of each rank of this process.
func (t *trainer) Statuses() []transport.RankStatus { return t.run.Statuses() }

// Step trains on one step's microbatches and updates the weights.
func (t *trainer) Step(ctx context.Context) error {
	t.drawn.Step = int64(t.session.Done)
	step := func() (*runner.Result, error) { return t.run.Step(ctx, t.opts.Microbatches, t.train) }
	if t.opts.lengths {
		t.data.documents.Step = t.drawn.Step
	}
	if t.opts.pack > 0 {
		step = func() (*runner.Result, error) { return t.stepPacked(ctx) }
	}
	result, err := t.metrics.Step(func() (*runner.Result, error) {
		return t.session.Process.Step(ctx, t.metrics, step)
	})
	if err != nil {
		return err
	}
	switch result.Outcome {
	case loss.Skipped:
		return fmt.Errorf("step %d: the loss or its gradient is not a number (first in microbatch %d): start again with a lower -lr",
			t.session.Done+1, result.FirstNonFinite)
	case loss.Empty:
		return fmt.Errorf("step %d: no %s has a next one to predict: give more text", t.session.Done+1, t.opts.unit())
	}
	met, err := t.model.RollScales(ctx, t.session.Process.Reducer()) // one call covers all ranks of this process, because the model has all their devices
	if err != nil {
		return err
	}
	adam := t.opts.optimizer
	adam.LearningRate = rate.Warmup(t.opts.warmup, rate.Cosine(adam.LearningRate, t.opts.steps-t.opts.warmup, 0.05))(t.session.Done)
	if err := t.model.Update(adam, result, t.opts.clip); err != nil {
		return err
	}
	nats, bytes := result.Losses[0].Value, int64(math.Round(result.Losses[0].Weight))
	took := t.metrics.FinishStep(t.session.Done+1, result, nats, bytes)
	t.metrics.FP8(result.Step, &met)
	t.show(result, nats)
	t.line = job.Line{Step: t.session.Done + 1, Tokens: bytes, Loss: nats, Norm: result.GradNorm, LearningRate: float64(adam.LearningRate), Took: took}
	return nil
}

const (
	// maxHeldOut is the maximum number of bytes of held-out text that an evaluation reads, so
	// that it takes seconds.
	maxHeldOut = 64 << 10
	// heldOutGroups is the number of groups into which the held-out windows are divided. The
	// variation between the groups shows the precision of their mean.
	heldOutGroups = 16
)

// evaluate measures the loss on held-out text, forward only.
func (t *trainer) evaluate(ctx context.Context) error {
	var sums, weights []float64
	windows := t.tiled.Count()
	groups := min(heldOutGroups, windows/t.opts.Replicas)
	for g := range groups {
		t.tiled.First = g * windows / groups
		result, err := t.run.Evaluate(ctx, (g+1)*windows/groups-t.tiled.First, t.heldout)
		if err != nil {
			return err
		}
		t.metrics.AddPeaks(result)
		sums, weights = append(sums, result.Losses[0].Sum), append(weights, result.Losses[0].Weight)
	}
	mean, standard := metrics.Ratio(sums, weights)
	if math.IsNaN(mean) || math.IsInf(mean, 0) {
		return errors.New("the held-out loss is not a number: start again with a lower -lr")
	}
	t.metrics.AddScore(metrics.Score{Known: true, Step: t.session.Done, Loss: mean, Standard: standard})
	return nil
}
