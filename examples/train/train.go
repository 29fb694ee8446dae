package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/progress"
	"github.com/weir-ml/weir/trainer/rate"
	"github.com/weir-ml/weir/trainer/terminal"
)

// before returns the error of the preparation before the first step.
func before(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w before the first step: nothing was written", job.ErrInterrupted)
	}
	return err
}

// trainer is one run of the program: a model on its ranks, the runner that trains it, the text,
// and the results of the run.
type trainer struct {
	opts   *options
	people *terminal.Output
	out    io.Writer // the same, with the control characters of names quoted
	json   io.Writer // for -json -

	built    atomic.Bool // the runner and the ends of the transport exist
	unsignal func()      // stops the handling of signals, and of weir status

	world *job.World   // nil if this process is alone
	devs  []job.Local  // of the ranks of this process
	ranks []job.Device // of all ranks
	model *transformer.Model
	run   *runner.Runner[kernels.Buffer]

	data           *data
	train, heldout runner.Source[kernels.Buffer]
	drawn          *corpus.Drawn // windows of train
	tiled          *corpus.Tiled // windows of heldout

	passed      error           // why checkpoints newer than the one of -resume were skipped
	first, done int             // number of steps before this run, and so far
	profile     *layout.Profile // allocations of the stages; nil if memory is not planned
	layout      *layout.Memory  // of a step's memory; nil if it is not planned
	unplanned   error           // why the memory is not planned

	metrics  *metrics.Run
	progress *progress.Line
	saved    bool        // the last step is in a checkpoint
	folder   *job.Folder // nil if another process leads
	watch    job.Watch
}

// train runs the program after its flags were parsed.
func train(ctx context.Context, opts *options, stdout, stderr io.Writer) (err error) {
	people := &terminal.Output{Writer: stdout}
	if opts.JSON == "-" {
		people.Writer = stderr
	}
	t := &trainer{opts: opts, people: people, out: terminal.Writer(people), json: stdout}
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := before(ctx, t.prepare(ctx)); err != nil {
		return err
	}
	return t.finish(ctx, t.loop(ctx))
}

// prepare reads and checks all inputs before anything is written.
func (t *trainer) prepare(ctx context.Context) error {
	from, err := t.resume()
	if err != nil {
		return err
	}
	if from != nil {
		defer from.Close() // it was only read
	}
	if err := t.opts.ReadPlan(); err != nil { // sets the number of ranks
		return err
	}
	if t.world, err = t.opts.Meet(ctx, os.Getenv, say); err != nil {
		return err
	}
	t.unsignal = t.world.Answer(t.status, say)
	if err := t.opts.validate(); err != nil {
		return err
	}
	if err := t.opts.CheckOutputs(); err != nil {
		return err
	}
	if t.data, err = readData(ctx, t.opts); err != nil {
		return err
	}
	t.metrics = metrics.New(t.opts.AllRanks())
	if err := t.build(ctx); err != nil {
		return err
	}
	t.built.Store(true)
	if err := t.load(from); err != nil {
		return err
	}
	if err := t.opts.CheckCheckpoint(ctx, t.world); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !t.world.Leads() {
		t.people.Writer, t.opts.JSON = io.Discard, ""
		t.metrics.Begin(t.measured())
		return nil
	}
	if t.folder, err = t.opts.OpenFolder(time.Now()); err != nil {
		return err
	}
	if t.watch, err = t.opts.OpenWatch(); err != nil {
		return errors.Join(err, t.folder.Discard())
	}
	t.metrics.Begin(t.measured())
	t.introduce()
	return nil
}

// loop trains until all steps are done, ctx is cancelled, or something fails.
func (t *trainer) loop(ctx context.Context) error {
	if err := t.evaluate(ctx); err != nil {
		return err
	}
	if err := t.folder.Start(t.metrics.LastScore()); err != nil {
		return err
	}
	t.progress = progress.New(t.people, progress.Columns(t.people.Writer), t.first, t.opts.steps)
	t.opts.Saver.Due(int64(t.done))
	for t.done < t.opts.steps {
		line, err := t.step(ctx)
		if err != nil {
			return err
		}
		if t.done < t.opts.steps {
			if err := t.checkpoint(ctx); err != nil {
				return err
			}
		}
		if every := t.opts.evaluate; t.done == t.opts.steps || every > 0 && t.done%every == 0 {
			if err = t.evaluate(ctx); err == nil {
				line.Score = t.metrics.LastScore()
			}
		}
		if t.done == t.opts.steps && err == nil {
			t.saved = t.checkpoint(ctx) == nil // if it fails, finish tries again, and reports the error
		}
		if written := errors.Join(t.folder.Step(line), t.watch.Step(t.metrics, line, t.opts.steps, t.subtitle())); written != nil || err != nil {
			return errors.Join(written, err)
		}
	}
	return nil
}

// step trains on one step's microbatches and updates the weights.
func (t *trainer) step(ctx context.Context) (job.Line, error) {
	t.drawn.Step = int64(t.done)
	result, err := t.metrics.Step(func() (*runner.Result, error) {
		return t.world.Step(ctx, t.metrics, func() (*runner.Result, error) { return t.run.Step(ctx, t.opts.Microbatches, t.train) })
	})
	if err != nil {
		return job.Line{}, err
	}
	switch result.Outcome {
	case loss.Skipped:
		return job.Line{}, fmt.Errorf("step %d: the loss or its gradient is not a number (first in microbatch %d): start again with a lower -lr",
			t.done+1, result.FirstNonFinite)
	case loss.Empty:
		return job.Line{}, fmt.Errorf("step %d: no %s has a next one to predict: give more text", t.done+1, t.opts.unit())
	}
	met, err := t.model.RollScales(ctx, t.world.Reducer()) // the model has the devices of every rank of the process
	if err != nil {
		return job.Line{}, err
	}
	adam := t.opts.optimizer
	adam.LearningRate = rate.Warmup(t.opts.warmup, rate.Cosine(adam.LearningRate, t.opts.steps-t.opts.warmup, 0.05))(t.done)
	if err := t.model.Update(adam, result, t.opts.clip); err != nil {
		return job.Line{}, err
	}
	t.done++
	nats, bytes := result.Losses[0].Value, int64(math.Round(result.Losses[0].Weight))
	took := t.metrics.FinishStep(t.done, result, nats, bytes)
	t.metrics.FP8(result.Step, &met)
	t.show(result, nats)
	return job.Line{Step: t.done, Tokens: bytes, Loss: nats, Norm: result.GradNorm, LearningRate: float64(adam.LearningRate), Took: took}, nil
}

const (
	// mostHeldOut is the maximum number of bytes of held-out text that an evaluation reads, so
	// that it takes seconds.
	mostHeldOut = 64 << 10
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
	t.metrics.AddScore(metrics.Score{Known: true, Step: t.done, Loss: mean, Standard: standard})
	return nil
}
