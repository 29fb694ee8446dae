package messages

import (
	"context"
	"sync"

	"github.com/weir-ml/weir/internal/turns"
)

// Waiter is where the goroutine of a rank waits. The transport keeps everything that a rank waits for
// under one lock; any goroutine that changes it wakes the ranks that may go on.
type Waiter struct {
	Turns turns.Turns // nil outside of a simulation

	lock *sync.Mutex
	wake chan struct{}
}

// NewWaiter returns the Waiter of a rank. The lock guards what it waits for.
func NewWaiter(lock *sync.Mutex) Waiter { return Waiter{lock: lock, wake: make(chan struct{}, 1)} }

// Wake has the rank look again whether it still waits. Any goroutine may call it.
func (w *Waiter) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // the rank has not seen the last one yet
	}
}

// Sleep returns nil when over returns true, or else the cause of the context's end. The caller holds
// the lock, and so does every call of over; the rank sleeps without it.
func (w *Waiter) Sleep(ctx context.Context, over func() bool) error {
	select {
	case <-w.wake: // of an earlier wait
	default:
	}
	for !over() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.lock.Unlock()
		if w.Turns != nil {
			w.Turns.Wait(func() bool { return len(w.wake) > 0 || ctx.Err() != nil })
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
		w.lock.Lock()
	}
	return nil
}
