package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// ErrInterrupted is returned for a run that was asked to end.
var ErrInterrupted = errors.New("interrupted")

// ExitStatus returns the exit status of a process of the job for an error returned by AgreeOnEnd, as
// launch.ExitStatus does for other errors.
func ExitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrInterrupted):
		return launch.Interrupted
	case elsewhere(err):
		return launch.Elsewhere
	}
	return 1
}

// ending describes how the run ended in one process.
type ending struct {
	Done        int
	Interrupted bool
	Failed      string
}

// endHello is the hello with which AgreeOnEnd begins a step of the transport. Ranks that begin a training step
// at the same time have a different hello, so no rank begins its step, and every rank learns that the run ends.
const endHello = "the end of the run"

// maxEndAttempts is the maximum number of times that AgreeOnEnd begins again because other ranks were still
// in a step.
const maxEndAttempts = 16

// AgreeOnEnd makes all processes end the run in the same way. err is this process's result after done steps. A
// process may call AgreeOnEnd at any time, even while the others are in a step or begin the next one: their
// step then fails, and they must call AgreeOnEnd too. AgreeOnEnd returns the error of this process or of
// another one, if any has failed; otherwise an error if the processes have done unequal numbers of steps;
// otherwise ErrInterrupted if the context of any process ended the run.
func (w *Process) AgreeOnEnd(ctx context.Context, done int, err error) error {
	interrupted := err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) || w.consequence(err))
	if w == nil && interrupted {
		return ErrInterrupted
	}
	if w == nil || errors.As(err, new(*tcp.LostError)) {
		return err
	}
	mine := ending{Done: done, Interrupted: interrupted}
	// unlike is whether the ranks ran different steps. Another process may have ended the run; if none has, their
	// steps really differ.
	remote, ended := errors.AsType[*tcp.RemoteError](err)
	unlike := errors.Is(err, transport.ErrRanks) || ended && remote.Rank == w.ranks
	if err != nil && !interrupted && !unlike && !w.consequence(err) {
		mine.Failed = err.Error()
	}
	var fault, failed error
	for range maxEndAttempts {
		interrupted, failed = mine.Interrupted, nil
		fault = w.each(func(_ int, end *tcp.Endpoint[kernels.Buffer]) error {
			return end.Begin(context.Background(), []byte(endHello))
		})
		if errors.Is(fault, transport.ErrRanks) {
			continue
		}
		if fault != nil {
			return cmp.Or(err, fault)
		}
		unequal := error(nil)
		fault = exchangeValues(context.Background(), w, mine, func(rank int, theirs *ending) error {
			if theirs.Done != done && unequal == nil {
				unequal = fmt.Errorf("rank %d has done %d steps, but this rank has done %d", rank, theirs.Done, done)
			}
			if theirs.Failed != "" && failed == nil {
				failed = &elsewhereError{rank, theirs.Failed}
			}
			interrupted = interrupted || theirs.Interrupted
			return nil
		})
		if fault == nil {
			fault = unequal
			break
		}
	}
	switch {
	case mine.Failed != "":
		return err
	case failed != nil && (err == nil || unlike || mine.Interrupted):
		return failed
	case failed == nil && fault != nil:
		return fault
	case failed == nil && interrupted:
		return ErrInterrupted
	case err != nil && !unlike: // another process has failed, and the error of the step names the place
		return &elsewhereError{-1, err.Error()}
	}
	return err
}

// elsewhereError is an error that occurred in another process.
type elsewhereError struct {
	rank int // -1 if the text names it
	text string
}

func (e *elsewhereError) Error() string {
	if e.rank < 0 {
		return e.text
	}
	return fmt.Sprintf("rank %d: %s", e.rank, e.text)
}

// consequence reports whether an error was caused by another process or by the end of one.
func (w *Process) consequence(err error) bool {
	if w == nil {
		return false
	}
	if remote, ok := errors.AsType[*tcp.RemoteError](err); ok && !w.Has(remote.Rank) {
		return true
	}
	return elsewhere(err)
}

// elsewhere reports whether an error that ends the program began in another process.
func elsewhere(err error) bool {
	return errors.As(err, new(*tcp.LostError)) || errors.As(err, new(*elsewhereError))
}
