package local

import (
	"context"
	"time"
)

// await blocks a rank until what it waits for is there, or the step is over.
func (l *Links[T]) await(ctx context.Context, e *Endpoint[T], w wait[T]) error {
	for l.over(&w) == nil && !l.met(e, &w) {
		if err := l.block(ctx, e, w); err != nil {
			return err
		}
	}
	return l.over(&w)
}

// over returns what ended a wait: the cause of an abort, or the link's fault.
func (l *Links[T]) over(w *wait[T]) error {
	switch {
	case w.sort == toBegin || w.sort == forReaders:
		return nil
	case l.cause != nil:
		return l.cause
	case w.link != nil:
		return w.link.fault
	}
	return nil
}

// met reports whether what a rank waits for is there.
func (l *Links[T]) met(e *Endpoint[T], w *wait[T]) bool {
	switch w.sort {
	case forRoom:
		return l.cfg.Capacity <= 0 || w.link.count < l.cfg.Capacity
	case forTaker, forReceipt:
		return w.link.received >= w.number
	case forMessage:
		return w.link.count > 0
	case forAll:
		return e.all != nil
	case forReaders:
		for _, link := range l.links {
			if link != nil && link.from == e.rank && link.reading {
				return false
			}
		}
		return true
	}
	return false
}

// block sleeps until somebody clears the rank's wait, or the context ends. The clock
// is read here and nowhere else (L12).
func (l *Links[T]) block(ctx context.Context, e *Endpoint[T], w wait[T]) error {
	if w.sort == forReaders && l.met(e, &w) {
		return nil
	}
	select {
	case <-e.wake: // of a wait that a context has ended
	default:
	}
	w.since = time.Now()
	e.wait = w
	if w.sort != toBegin && w.sort != forReaders {
		l.keepWatch()
		l.lookAround(e)
		defer func() { e.waited += time.Since(w.since) }()
	}
	for turn := e.turns; e.wait.sort != nothing; {
		l.mu.Unlock()
		if turn != nil {
			turn.Wait(func() bool { return len(e.wake) > 0 || ctx.Err() != nil })
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if e.wait.sort != nothing && ctx.Err() != nil {
			e.wait = wait[T]{}
			return context.Cause(ctx)
		}
	}
	return nil
}

// poke wakes a rank if what it waits for is there.
func (l *Links[T]) poke(rank int) {
	e := &l.ends[rank]
	if e.wait.sort != nothing && (l.over(&e.wait) != nil || l.met(e, &e.wait)) {
		l.goOn(e)
	}
}

func (l *Links[T]) pokeAll() {
	for rank := range l.ends {
		l.poke(rank)
	}
}

// goOn ends a rank's wait.
func (l *Links[T]) goOn(e *Endpoint[T]) {
	e.wait = wait[T]{}
	e.wake <- struct{}{} // which is empty while a rank waits
}
