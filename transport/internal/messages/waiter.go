package messages

import (
	"context"
	"sync"

	"github.com/weir-ml/weir/internal/engine/turns"
)

// Waiter lets the goroutine of a rank wait for a condition. The transport has one lock that guards
// the state of all conditions; a goroutine that changes the state wakes the ranks that may continue.
type Waiter struct {
	Turns turns.Turns // nil outside of a simulation

	lock *sync.Mutex
	wake chan struct{}
}

// NewWaiter returns a rank's Waiter that uses the lock of its transport.
func NewWaiter(lock *sync.Mutex) Waiter { return Waiter{lock: lock, wake: make(chan struct{}, 1)} }

// Wake makes the rank check again whether it must wait. Any goroutine may call it.
func (w *Waiter) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // the rank has not received the last wake-up yet
	}
}

// Sleep sleeps until over returns true or the context ends. In the latter case it returns the context's cause.
// The caller holds the lock. Sleep releases it while sleeping, and holds it during calls of over.
func (w *Waiter) Sleep(ctx context.Context, over func() bool) error {
	select {
	case <-w.wake: // left over from an earlier wait
	default:
	}
	for turn := w.Turns; !over(); { // the lock guards Turns as well
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.lock.Unlock()
		if turn != nil {
			turn.Wait(func() bool { return len(w.wake) > 0 || ctx.Err() != nil })
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
		w.lock.Lock()
	}
	return nil
}
