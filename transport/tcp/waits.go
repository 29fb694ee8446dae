package tcp

import (
	"context"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// wait describes the event for which the rank waits.
type wait[T any] struct {
	reason waitReason
	tag    transport.Tag
	action schedule.Action // the awaited action; 0 at step end
	peer   int             // the awaited rank; -1 for all
	link   *sendEnd[T]
	number int64 // the number of the message, or the epoch
	since  time.Time
}

// waitReason is the kind of the awaited event.
type waitReason uint8

const (
	waitNone       waitReason = iota
	waitBegin                 // for all ranks to begin the step
	waitWithdrawal            // for rank 0 to confirm the withdrawal, or the step's beginning
	waitRoom                  // in Send, for room on the link
	waitReceipt               // for the receipt of a message
	waitConnection            // in Recv, for the sender to connect
	waitMessage               // in Recv, for a message
	waitAll                   // in Exchange, for all ranks
	waitCause                 // in Abort, or in a call whose connection has ended, for the cause
)

// happened reports whether the awaited event has happened. For waitMessage and waitCause it returns
// false: Recv ends the former, and endCause the latter.
func (e *Endpoint[T]) happened(w *wait[T]) bool {
	switch w.reason {
	case waitBegin:
		return e.epoch >= w.number
	case waitWithdrawal:
		return e.withdrawn || e.helloError != nil || e.epoch >= w.number
	case waitRoom:
		return e.cfg.Capacity <= 0 || w.link.Sent-w.link.taken < int64(e.cfg.Capacity)
	case waitReceipt:
		return min(w.link.taken, w.link.written) >= w.number
	case waitConnection:
		return e.receiving[direction{w.peer, w.tag.Backward()}] != nil
	case waitAll:
		return e.exchanged != nil
	}
	return false
}

// endCause returns the error that ends a wait without its event, or nil. A step that has begun and an exchange
// whose result has arrived are successes even if the step or the job has ended since.
func (e *Endpoint[T]) endCause(w *wait[T]) error {
	switch {
	case (w.reason == waitBegin || w.reason == waitWithdrawal || w.reason == waitAll) && e.happened(w):
		return nil
	case e.jobError != nil && w.link == nil && w.peer < 0:
		return e.jobError
	case e.jobError != nil:
		return &waitError{w.action, w.tag, w.peer, e.jobError}
	case w.reason == waitBegin:
		return e.helloError
	case w.reason == waitWithdrawal:
		return nil
	case e.cause != nil:
		return e.cause
	case w.link != nil:
		return w.link.fault
	}
	return nil
}

// await blocks until the event has happened or an error ends the wait.
func (e *Endpoint[T]) await(ctx context.Context, w wait[T]) error {
	if err := e.endCause(&w); err != nil || e.happened(&w) {
		return err
	}
	w.since = time.Now()
	e.wait = w
	defer e.endWait()
	if err := e.waiter.Sleep(ctx, func() bool { return e.endCause(&w) != nil || e.happened(&w) }); err != nil {
		return err
	}
	return e.endCause(&w)
}

// endWait ends a wait, and adds its time to the totals unless it was a wait in Begin.
func (e *Endpoint[T]) endWait() {
	if e.wait.reason != waitBegin {
		took := time.Since(e.wait.since)
		if e.waited += took; e.wait.peer >= 0 {
			e.waits[e.wait.peer] += took
		}
	}
	e.wait = wait[T]{}
}

// awaitCause is called after a connection has failed with err. It waits briefly for the cause, which
// arrives on the control connection, and returns it, or err if it does not arrive.
func (e *Endpoint[T]) awaitCause(err error, w wait[T]) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(e.cfg.Silence, 2*time.Second))
	defer cancel()
	w.reason, w.link = waitCause, nil
	if cause := e.await(ctx, w); e.jobError != nil || e.cause != nil {
		return cause
	}
	return err
}
