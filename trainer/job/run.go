package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// Trainer is the part of a training program that depends on the model. Run calls the methods in the order in
// which they are listed: Step and Stepped once for each step, and State for each checkpoint. In a job of
// several processes, each of them makes the same calls.
type Trainer interface {
	// Check checks the flags, which the checkpoint may have set, and calls Options.Validate.
	Check(ctx context.Context) error
	// Build makes the devices of this process's ranks, joins the others (Process.Join), and makes the model and
	// its runner with Process.RunnerTopology, Process.Hooks, and FirstStep set to Session.Done. All processes must
	// agree on the flags of the job, Session.Deciding and Session.Done: Build passes only other facts to Join.
	Build(ctx context.Context) error
	// Restore sets the weights and the state of the optimizer from the checkpoint that the run
	// resumes. It is not called for a new run.
	Restore(c *checkpoint.Checkpoint) error
	// Begin opens the outputs of the run. All inputs have been checked, and nothing has been written.
	Begin(ctx context.Context) error
	// Start is called before the first step: it may evaluate the model.
	Start(ctx context.Context) error
	// Step trains a step (Process.Step) and updates the weights.
	Step(ctx context.Context) error
	// State returns the state of the run for a checkpoint, and this process's pieces of it.
	State() (checkpoint.State, []checkpoint.Piece, error)
	// Stepped is called after a step and its checkpoint, if one was due. It writes the outputs of the
	// step, and evaluates the model.
	Stepped(ctx context.Context) error
	// End writes the results of the run, in every process. ended is nil, ErrInterrupted, or the reason
	// why the run has failed. saved reports whether the weights are in a checkpoint. End returns an
	// error only if results could not be written.
	End(ended error, saved bool) error
	// Statuses returns the statuses of the ranks of this process's runner, if the runner links them itself. It is
	// called on any goroutine, after Build.
	Statuses() []transport.RankStatus
}

// Session is the state of a run. The caller sets the fields of the first group, and calls Run.
type Session struct {
	// Set before Run. Options, Deciding, Steps and Say are required.
	*Options
	// Deciding lists the flags that the weights depend on, and Free those of them that may change when a run is
	// resumed. Older holds the values of flags that a checkpoint lacks. See OpenCheckpoint.
	Deciding, Free []string
	Older          map[string]string
	Steps          *int              // the number of steps of the whole run
	Say            func(line string) // prints a line for people
	// Opened, unless nil, checks the checkpoint that the run resumes, and may set c.Step.
	Opened func(c *checkpoint.Checkpoint) error

	// Set by Run; a Trainer reads them.
	Process     *Process // this process's part of the job; nil if it is the only one
	First, Done int      // the number of steps done before this run, and of all steps done so far
	Passed      error    // why checkpoints newer than the resumed one were skipped

	built   atomic.Bool
	trainer Trainer
	saved   int // the step of the last checkpoint in the folder of -checkpoint, or -1
}

// Run trains: it resumes from the last checkpoint, meets the other processes, runs the steps, writes the
// checkpoints that are due, and ends the run in the same way in all processes. After an interrupt, it writes
// everything before it ends the run. The caller closes its runner, model and devices afterwards, and exits with
// ExitStatus.
func (s *Session) Run(ctx context.Context, t Trainer) (err error) {
	s.trainer, s.saved = t, -1
	stop := func() {}
	defer func() {
		stop()
		err = errors.Join(err, s.Process.Close())
	}()
	if err := cmp.Or(s.prepare(ctx, &stop), ctx.Err()); err != nil {
		return Unprepared(ctx, err)
	}
	if err := s.trainer.Begin(ctx); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w before the first step: %w", ErrInterrupted, err)
		}
		return err
	}
	return s.finish(ctx, s.train(ctx))
}

// Unprepared returns the error of a program that has ended with err before anything was written, or nil if err
// is nil. If ctx is done, the result wraps ErrInterrupted, and also err unless err is the error of ctx.
func Unprepared(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("%w before the first step: nothing was written", ErrInterrupted)
	}
	return fmt.Errorf("%w before the first step: %w", ErrInterrupted, err)
}

// prepare does everything that precedes Trainer.Begin, and writes nothing.
func (s *Session) prepare(ctx context.Context, stop *func()) error {
	from, passed, err := s.OpenCheckpoint(s.Deciding, s.Free, s.Older)
	if err != nil {
		return err
	}
	if s.Passed = passed; from != nil {
		defer from.Close() // it was only read
		if err := s.resume(from); err != nil {
			return fmt.Errorf("-resume: %s %w", s.Resume, err)
		}
	}
	if err := s.ReadPlan(); err != nil { // sets the number of ranks
		return err
	}
	if s.Process, err = s.Meet(ctx, os.Getenv, s.Say); err != nil {
		return err
	}
	if s.Process != nil {
		s.Process.facts = s.facts
	}
	*stop = s.Process.Answer(s.status, s.Say)
	if err := s.trainer.Check(ctx); err != nil {
		return err
	}
	if s.Audit > *s.Steps {
		return fmt.Errorf("-audit is %d: give at most %d, the number of steps", s.Audit, *s.Steps)
	}
	if err := s.CheckOutputs(); err != nil {
		return err
	}
	if err := s.trainer.Build(ctx); err != nil {
		return err
	}
	s.built.Store(true)
	if from != nil {
		if err := s.trainer.Restore(from); err != nil {
			return fmt.Errorf("-resume: %w", err)
		}
	}
	return s.CheckCheckpoint(ctx, s.Process)
}

// facts returns the facts on which all processes must agree, apart from those of the Trainer.
func (s *Session) facts() []tcp.Fact {
	return append(s.Facts(slices.Concat(Deciding, s.Deciding)...),
		tcp.Fact{Name: "a folder of -checkpoint", Value: fmt.Sprint(s.Checkpoint != "")},
		tcp.Fact{Name: "the step that the run begins with", Value: fmt.Sprint(s.Done)})
}

// resume makes the run begin after the steps that a checkpoint's weights have been trained for.
func (s *Session) resume(c *checkpoint.Checkpoint) error {
	if s.Opened != nil {
		if err := s.Opened(c); err != nil {
			return err
		}
	}
	if steps := int64(*s.Steps); c.Step > steps || c.Step == steps && !s.resumesItself() { // otherwise the same command has finished before
		return fmt.Errorf("has seen all %d steps: give more with -steps", c.Step)
	}
	s.First, s.Done = int(c.Step), int(c.Step)
	if s.resumesItself() {
		s.saved = s.Done
	}
	return nil
}

// train runs steps until all are done, the context ends, or something fails.
func (s *Session) train(ctx context.Context) error {
	if err := s.trainer.Start(ctx); err != nil {
		return err
	}
	s.Saver.Due(int64(s.Done)) // starts the clock
	for s.Done < *s.Steps {
		if err := s.trainer.Step(ctx); err != nil {
			return err
		}
		s.Done++
		last := s.Done == *s.Steps
		due, err := s.Due(ctx, s.Process, int64(s.Done), last)
		if due && err == nil {
			err = s.save()
		}
		if err != nil && !last { // finish tries the last checkpoint again, and reports the error
			return err
		}
		if err := s.trainer.Stepped(ctx); err != nil {
			return err
		}
	}
	return nil
}

// save writes a checkpoint together with the other processes.
func (s *Session) save() error {
	state, pieces, err := s.trainer.State()
	if err = s.Process.share(context.Background(), err); err == nil { // otherwise the others would wait for this process
		err = s.Save(s.Process, state, s.Deciding, pieces...)
	}
	if err == nil {
		s.saved = s.Done
	}
	return err
}

// finish ends the run in all processes, and returns the reason for the end. It writes the results, even of a
// run that was interrupted or has failed, and the last checkpoint if the weights are valid.
func (s *Session) finish(ctx context.Context, err error) error {
	err = s.Process.AgreeOnEnd(ctx, s.Done, err)
	interrupted := errors.Is(err, ErrInterrupted)
	sound := err == nil || interrupted || errors.Is(err, atomicfile.ErrWriting) // the weights are valid
	save, fault := s.Process.Agree(context.Background(), s.Checkpoint != "" && sound && s.Done > s.First && s.saved != s.Done)
	if save && fault == nil {
		fault = s.save()
	}
	ended := s.trainer.End(err, s.saved == s.Done)
	fault = cmp.Or(fault, s.Process.share(context.Background(), ended)) // if one process cannot write, none reports success
	switch {
	case err != nil && !interrupted:
		return err
	case fault != nil:
		return fault
	case interrupted && s.Checkpoint != "" && s.saved != s.Done:
		return fmt.Errorf("%w after step %d of %d: the results are written, but no checkpoint, because no step was done", ErrInterrupted, s.Done, *s.Steps)
	case interrupted:
		return fmt.Errorf("%w after step %d of %d: everything is written", ErrInterrupted, s.Done, *s.Steps)
	}
	return nil
}

// status returns the status of the ranks that this process can observe.
func (s *Session) status() launch.Status {
	switch {
	case !s.built.Load():
		return launch.Status{Text: "the job prepares its first step\n"}
	case s.Process == nil && s.AllRanks() == 1:
		return launch.Status{Text: "rank 0 is the only rank, and waits for none\n"}
	}
	return Status(append(s.trainer.Statuses(), s.Process.Statuses()...))
}
