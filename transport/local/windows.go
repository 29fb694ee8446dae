package local

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/internal/engine/turns"
	"github.com/weir-ml/weir/transport"
)

var _ transport.Windows = (*Endpoint[int])(nil)

// Expose lets the other ranks read b under a tag.
func (e *Endpoint[T]) Expose(tag transport.Tag, b []byte) error { return e.windows.Expose(tag, b) }

// Get copies from the memory that another rank exposes.
func (e *Endpoint[T]) Get(ctx context.Context, from int, tag transport.Tag, offset int64, dst []byte) error {
	l := e.links
	if from < 0 || from >= len(l.ends) || from == e.rank {
		return fmt.Errorf("local: rank %d of %d reads from rank %d: read from another rank", e.rank, len(l.ends), from)
	}
	wait := windowWait[T]{e: e, from: from, tag: tag}
	return wait.end(l.ends[from].windows.Read(ctx, e.windows.Step(), tag, offset, int64(len(dst)), wait.begin, func(b []byte) error {
		if t := turns.Of(ctx); t != nil { // others may run while this rank reads
			t.Wait(nil)
		}
		if l.cfg.Sum == nil {
			copy(dst, b)
			return nil
		}
		sum := transport.Sum(b)
		copy(dst, b)
		if err := transport.Compare(transport.Sum(dst), sum); err != nil {
			return fmt.Errorf("local: reading %v from rank %d: %w", tag, from, err)
		}
		return nil
	}))
}

// Withdraw ends an exposure.
func (e *Endpoint[T]) Withdraw(ctx context.Context, tag transport.Tag, n int64) error {
	wait := windowWait[T]{e: e, from: -1, tag: tag}
	return wait.end(e.windows.Withdraw(ctx, tag, n, wait.begin))
}

// windowWait registers a call with the stall watch while the call waits. The call waits for rank from, or for
// all ranks if from is -1. A call that does not wait allocates nothing.
type windowWait[T any] struct {
	e     *Endpoint[T]
	from  int
	tag   transport.Tag
	ended func() // nil until the call waits
}

// begin is called when the call begins to wait.
func (w *windowWait[T]) begin() {
	l := w.e.links
	w.ended = w.e.windows.Waits(w.from, w.tag)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepWatch()
}

// end is called with the result of the call, and returns it.
func (w *windowWait[T]) end(err error) error {
	if w.ended != nil {
		w.ended()
	}
	if err == nil {
		l := w.e.links
		l.mu.Lock()
		l.watch.moves++
		l.mu.Unlock()
	}
	return err
}

// Served returns the number of bytes that other ranks have read from this rank.
func (e *Endpoint[T]) Served() int64 { return e.windows.Served() }
