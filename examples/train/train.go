package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/outfile"
	"github.com/weir-ml/weir/trainer/units"
)

// errInterrupted is wrapped by the error of a run that was told to stop.
var errInterrupted = errors.New("interrupted")

var errBefore = fmt.Errorf("%w before the first step: nothing was written", errInterrupted)

// training is one run of the program.
type training struct {
	opts     *options
	data     *corpus.Text
	sum      string // of the text
	out      *output
	json     io.Writer // for -json -
	trainer  *trainer
	record   *record
	folder   *folder
	progress *progress
	failures failures
	first    int // steps that the weights had seen before
}

// train runs the program after its flags are read.
func train(ctx context.Context, opts *options, stdout, stderr io.Writer) (err error) {
	people := stdout
	if opts.json == "-" {
		people = stderr
	}
	t := &training{opts: opts, out: &output{Writer: people}, json: stdout}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.prepare(ctx); err != nil {
		return err
	}
	return t.finish(ctx, t.loop(ctx))
}

// prepare reads and checks everything before anything is written.
func (t *training) prepare(ctx context.Context) error {
	var from *saved
	if t.opts.resume != "" {
		var err error
		if from, err = openCheckpoint(t.opts.resume); err != nil {
			return err
		}
		defer from.Close() // It was only read.
		if err := t.opts.adopt(from); err != nil {
			return err
		}
		t.first = from.steps
	}
	if err := t.opts.validate(); err != nil {
		return err
	}
	if err := errors.Join(writable("checkpoint", t.opts.checkpoint), writable("json", t.opts.json)); err != nil {
		return err
	}
	var err error
	if t.data, err = readText(ctx, t.opts.data); err != nil {
		return err
	}
	training, heldout, err := split(t.data, t.opts.sequence)
	if err != nil {
		return err
	}
	t.sum = t.data.SHA256()
	t.record = newRecord(t.opts.ranks)
	if t.trainer, err = newTrainer(ctx, t.opts, training, heldout, t.first, t.record.hooks); err != nil {
		return err
	}
	if from != nil {
		if err := t.trainer.load(from, t.sum); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return errBefore
	}
	if t.folder, err = openFolder(t.opts.folder, time.Now()); err != nil {
		return err
	}
	t.record.begin(t.trainer.devs, memlog.New(t.folder.memory))
	t.record.plan(t.trainer.memory, t.first)
	t.record.dump = t.dump
	t.introduce(training, heldout)
	return nil
}

// introduce says what is going to run.
func (t *training) introduce(training, heldout []byte) {
	fmt.Fprintf(t.out, "text    %s, %s bytes to train on, %s held out\n",
		t.data.Name, units.Count(int64(len(training))), units.Count(int64(len(heldout))))
	if t.data.Cut {
		fmt.Fprintf(t.out, "        there is more; this is the first %s\n", units.Size(int64(len(t.data.Bytes))))
	}
	fmt.Fprintf(t.out, "model   %s parameters, %s with gradients and moments; %s\n",
		units.Count(t.trainer.weights()), units.Size(t.trainer.modelBytes()), t.opts.describe())
	t.introduceRanks()
	t.introduceMemory()
	if t.first > 0 {
		fmt.Fprintf(t.out, "resume  %s, after step %d\n", t.opts.resume, t.first)
	}
	fmt.Fprintf(t.out, "folder  %s\n", t.folder.path)
}

// introduceRanks says how the ranks run, where there are several.
func (t *training) introduceRanks() {
	o := t.opts
	if o.ranks == 1 {
		return
	}
	fmt.Fprintf(t.out, "ranks   %d in this process, on %d cores; links of capacity %d\n", o.ranks, runtime.GOMAXPROCS(0), o.capacity)
	if n := o.relays(); n > 0 {
		fmt.Fprintf(t.out, "        %d of the %d stages only hand on what they get; -layers %d gives each a part\n", n, o.stages, o.stages-2)
	}
	if !o.ascends() {
		fmt.Fprintf(t.out, "        %s adds gradients in an order of its own: weights differ from those of other plans in their last bits\n", o.plan)
	}
}

// loop trains until all steps are done, ctx is cancelled, or something fails.
func (t *training) loop(ctx context.Context) error {
	if err := t.evaluate(ctx); err != nil {
		return err
	}
	if err := t.folder.start(t.record.lastScore); err != nil {
		return err
	}
	t.progress = newProgress(t.out, t.first, t.opts.steps)
	for t.trainer.done < t.opts.steps {
		t.record.training = true
		o, err := t.trainer.step(ctx)
		t.record.training = false
		if err != nil {
			return err
		}
		t.record.step(t.trainer.done, o)
		t.record.fp8(o.Step, &o.met)
		t.progress.step(t.trainer.done, o, t.record)
		var s score
		done, every := t.trainer.done, t.opts.evaluate
		if done == t.opts.steps || every > 0 && done%every == 0 {
			if err = t.evaluate(ctx); err == nil {
				s = t.record.lastScore
			}
		}
		if err = errors.Join(t.folder.step(done, o, s), err); err != nil {
			return err
		}
	}
	return nil
}

// evaluate measures the loss on held-out text.
func (t *training) evaluate(ctx context.Context) error {
	s, err := t.trainer.evaluate(ctx)
	if err == nil {
		t.record.score(s)
	}
	return err
}

// finish writes everything that a run leaves behind, also where it was
// interrupted or failed, and says how it ended.
func (t *training) finish(ctx context.Context, err error) error {
	if t.progress != nil {
		t.progress.end()
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w after step %d of %d: everything is written", errInterrupted, t.trainer.done, t.opts.steps)
	}
	failed := err != nil && !errors.Is(err, errInterrupted)
	sound := !failed || errors.Is(err, outfile.ErrWriting) // the weights are worth keeping

	s, made := t.summary(err)
	faults := []error{made}
	if err != nil && t.trainer.done == t.first { // weights of no step are not worth an older checkpoint
		s.Checkpoint = ""
	}
	if s.Checkpoint != "" && sound {
		faults = append(faults, t.trainer.save(t.opts.checkpoint, t.sum))
	}
	faults = append(faults, t.folder.finish(t.page(s).Write))
	if !failed {
		faults = append(faults, t.writeSummary(s), s.table(t.out, t.folder), t.out.err)
	}
	if fault := first(faults); fault != nil && !failed {
		return fault
	}
	return t.explained(err)
}

func (t *training) writeSummary(s *summary) error {
	switch t.opts.json {
	case "":
		return nil
	case "-":
		return s.write(t.json)
	}
	return writeFile(t.opts.json, s.write)
}

func first(faults []error) error {
	for _, fault := range faults {
		if fault != nil {
			return fault
		}
	}
	return nil
}

// close ends what prepare began.
func (t *training) close() error {
	if t.trainer == nil {
		return nil
	}
	return t.trainer.Close()
}
