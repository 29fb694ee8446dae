package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport/tcp"
)

// ErrInterrupted is returned for a run that was asked to end.
var ErrInterrupted = errors.New("interrupted")

// ExitStatus returns the exit status of a process of the job for an error returned by Settle, as
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

// Settle makes all processes end the run in the same way. err is this process's result after done
// steps. of is an error that occurred outside a step, which the other processes do not know of.
// Settle returns ErrInterrupted if a process was interrupted.
func (w *World) Settle(ctx context.Context, done int, err error, of error) error {
	if w == nil || errors.As(err, new(*tcp.LostError)) {
		return err
	}
	mine := ending{Done: done, Interrupted: err != nil && ctx.Err() != nil}
	if err != nil && !mine.Interrupted && !w.consequence(err) {
		mine.Failed = err.Error()
	}
	verdict := err
	merge := func(rank int, theirs *ending) error {
		switch {
		case theirs.Done != done:
			return fmt.Errorf("rank %d has done %d steps, but this rank has done %d", rank, theirs.Done, done)
		case theirs.Failed != "" && verdict == nil:
			verdict = &elsewhereError{rank, theirs.Failed}
		case theirs.Interrupted && (verdict == nil || w.consequence(verdict)):
			verdict = ErrInterrupted
		}
		return nil
	}
	var fault error
	for tries := range 4 {
		began := w.each(func(_ int, end *tcp.Endpoint[kernels.Buffer]) error { return end.Begin(context.Background(), nil) })
		if began != nil {
			return cmp.Or(err, began)
		}
		if of != nil && tries == 0 { // the others may still be in a step
			for _, end := range w.ends {
				end.Abort(of)
			}
			continue
		}
		verdict = err
		if fault = exchangeValues(context.Background(), w, mine, merge); fault == nil {
			break
		}
	}
	if mine.Interrupted && w.consequence(verdict) {
		verdict = ErrInterrupted
	}
	if w.consequence(verdict) && !errors.As(verdict, new(*elsewhereError)) {
		verdict = &elsewhereError{-1, verdict.Error()}
	}
	return cmp.Or(fault, verdict)
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
func (w *World) consequence(err error) bool {
	if remote, ok := errors.AsType[*tcp.RemoteError](err); ok && !w.Has(remote.Rank) {
		return true
	}
	return elsewhere(err)
}

// elsewhere reports whether an error that ends the program began in another process.
func elsewhere(err error) bool {
	return errors.As(err, new(*tcp.LostError)) || errors.As(err, new(*elsewhereError))
}
