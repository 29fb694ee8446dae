package local

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/internal/turns"
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
	owner := &l.ends[from].windows
	return e.waitInWindows(from, tag, func(blocks func()) error {
		return owner.Read(ctx, e.windows.Step(), tag, offset, int64(len(dst)), blocks, func(b []byte) error {
			if t := turns.Of(ctx); t != nil { // others may run while this rank reads
				t.Wait(nil)
			}
			copy(dst, b)
			return nil
		})
	})
}

// Withdraw ends an exposure.
func (e *Endpoint[T]) Withdraw(ctx context.Context, tag transport.Tag, n int64) error {
	return e.waitInWindows(-1, tag, func(blocks func()) error { return e.windows.Withdraw(ctx, tag, n, blocks) })
}

// waitInWindows makes a call that may wait for a rank, or for all if it is -1, under the watch for
// stalls.
func (e *Endpoint[T]) waitInWindows(from int, tag transport.Tag, call func(blocks func()) error) error {
	l := e.links
	ended := func() {}
	err := call(func() {
		ended = e.windows.Waits(from, tag)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keepWatch()
	})
	ended()
	if err == nil {
		l.mu.Lock()
		l.watch.moves++
		l.mu.Unlock()
	}
	return err
}

// Served returns the number of bytes that other ranks have read from this rank.
func (e *Endpoint[T]) Served() int64 { return e.windows.Served() }
