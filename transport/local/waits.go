package local

import (
	"context"
	"time"
)

// await blocks a rank until its wait ends, and returns the error that ended it, if any. It reads the
// clock only if the rank must wait (L12).
func (l *Links[T]) await(ctx context.Context, e *Endpoint[T], w wait[T]) error {
	if l.waitOver(e, &w) {
		return l.endCause(e, &w)
	}
	w.since = time.Now()
	e.wait = w
	counted := w.reason != waitBegin && w.reason != waitRelease
	if counted {
		l.keepWatch()
		l.findDeadlock(e)
	}
	err := e.waiter.Sleep(ctx, func() bool { return l.waitOver(e, &w) })
	if e.wait = (wait[T]{}); counted {
		e.waited += time.Since(w.since)
	}
	if err != nil {
		return err
	}
	return l.endCause(e, &w)
}

// waitOver reports whether a wait has ended.
func (l *Links[T]) waitOver(e *Endpoint[T], w *wait[T]) bool {
	return l.endCause(e, w) != nil || l.happened(e, w)
}

// endCause returns the error that ends a wait: the cause of an abort, the fault of the link, or hellos
// that differ. It returns nil if no error ends the wait.
func (l *Links[T]) endCause(e *Endpoint[T], w *wait[T]) error {
	switch {
	case w.reason == waitBegin:
		return e.helloError
	case w.reason == waitRelease:
		return nil
	case l.cause != nil:
		return l.cause
	case w.link != nil:
		return w.link.fault
	}
	return nil
}

// happened reports whether the awaited event has happened.
func (l *Links[T]) happened(e *Endpoint[T], w *wait[T]) bool {
	switch w.reason {
	case waitBegin:
		return l.steps >= w.number
	case waitRoom:
		return l.cfg.Capacity <= 0 || w.link.Len() < l.cfg.Capacity
	case waitReceipt:
		return w.link.received >= w.number
	case waitMessage:
		return w.link.Len() > 0
	case waitAll:
		return e.exchanged != nil
	case waitRelease:
		for _, link := range l.links {
			if link != nil && link.from == e.rank && link.reading {
				return false
			}
		}
		return true
	}
	return false
}

// wake wakes a rank if its wait has ended.
func (l *Links[T]) wake(rank int) {
	e := &l.ends[rank]
	if e.wait.reason != waitNone && l.waitOver(e, &e.wait) {
		e.waiter.Wake()
	}
}

func (l *Links[T]) wakeAll() {
	for rank := range l.ends {
		l.wake(rank)
	}
}
