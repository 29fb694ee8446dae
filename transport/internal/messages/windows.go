package messages

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-ml/weir/internal/engine/turns"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/transport"
)

// Windows holds the memory that a rank exposes to others, and the list of the rank's own waiting
// calls. Steps are numbered, so that a read in the next step cannot find the last step's memory.
// The zero value is for a rank before its first step.
type Windows struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil if no call waits
	step    int64
	cause   error // ends every call of the step
	closed  bool  // no step follows
	exposed map[transport.Tag]*exposure
	readers int // number of reads in progress
	served  int64
	waits   []*WindowWait
}

// exposure is the memory exposed under a tag.
type exposure struct {
	b         []byte
	read      int64 // number of bytes read
	readers   int   // number of reads in progress
	withdrawn bool
}

// WindowWait is a call of the rank that waits for another rank, or for all ranks if From is -1.
type WindowWait struct {
	From  int
	Tag   transport.Tag
	Since time.Time
}

// notify wakes every call that waits.
func (w *Windows) notify() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// wait waits for the next change. If the context ends first, it returns the context's cause. It
// releases the lock while it waits.
func (w *Windows) wait(ctx context.Context) error {
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	changed := w.changed
	w.mu.Unlock()
	defer w.mu.Lock()
	if t := turns.Of(ctx); t != nil {
		t.Wait(func() bool {
			select {
			case <-changed:
				return true
			default:
				return ctx.Err() != nil
			}
		})
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Begin begins a step, and ends the exposures of the last step.
func (w *Windows) Begin(step int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step, w.cause = step, nil
	clear(w.exposed)
	w.notify()
}

// Step returns the number of the current step.
func (w *Windows) Step() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.step
}

// End ends every current and later call of the step with the first cause.
func (w *Windows) End(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause = cause
	}
	w.notify()
}

// Close ends every call, including reads of steps that this rank has not begun.
func (w *Windows) Close(cause error) {
	w.End(cause)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.notify()
}

// Drain waits until no rank is reading the memory. The step must have ended. It uses the context only for its
// Turns.
func (w *Windows) Drain(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.readers > 0 {
		_ = w.wait(ctx)
	}
}

// Expose implements transport.Windows.Expose.
func (w *Windows) Expose(tag transport.Tag, b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return w.cause
	}
	if !tag.Content.Exposed() {
		return diagnostic.Errorf(transport.ErrWindow, "Expose of %v, which is sent: use Send", tag)
	}
	if w.exposed[tag] != nil {
		return diagnostic.Errorf(transport.ErrWindow, "Expose of %v a second time in a step", tag)
	}
	if w.exposed == nil {
		w.exposed = map[transport.Tag]*exposure{}
	}
	w.exposed[tag] = &exposure{b: b}
	w.notify()
	return nil
}

// Read waits for the memory exposed under a tag and calls use with n bytes of it, starting at offset.
// Before it waits for the first time, it calls blocks, which may be nil, without holding the lock.
func (w *Windows) Read(ctx context.Context, step int64, tag transport.Tag, offset, n int64, blocks func(), use func(b []byte) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !tag.Content.Exposed() {
		return diagnostic.Errorf(transport.ErrWindow, "Get of %v, which is sent: use Recv", tag)
	}
	var x *exposure
	for {
		if w.step > step {
			return diagnostic.Errorf(transport.ErrWindow, "%v, of step %d of the transport, which has ended", tag, step)
		}
		if (w.closed || w.step == step) && w.cause != nil {
			return w.cause
		}
		if x = w.exposed[tag]; x != nil && w.step == step {
			break
		}
		if w.announce(&blocks) {
			continue
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
	if x.withdrawn {
		return diagnostic.Errorf(transport.ErrWindow, "%v was withdrawn: withdraw it after all ranks have read it", tag)
	}
	if size := int64(len(x.b)); offset < 0 || n < 0 || offset > size-n {
		return diagnostic.Errorf(transport.ErrWindow, "%d bytes at offset %d of %v, which has %d", n, offset, tag, size)
	}
	x.readers++
	w.readers++
	w.served += n // counted first, because the reader may have received and reported all bytes before use returns
	w.mu.Unlock()
	err := use(x.b[offset : offset+n : offset+n])
	w.mu.Lock()
	x.readers--
	w.readers--
	if err == nil {
		x.read += n
	} else {
		w.served -= n
	}
	w.notify()
	return err
}

// announce calls blocks without holding the lock, and sets it to nil, unless it is nil already. It reports
// whether it has called blocks, because the state may have changed during the call.
func (w *Windows) announce(blocks *func()) bool {
	if *blocks == nil {
		return false
	}
	w.mu.Unlock()
	defer w.mu.Lock()
	(*blocks)()
	*blocks = nil
	return true
}

// Withdraw implements transport.Windows.Withdraw. It calls blocks as Read does.
func (w *Windows) Withdraw(ctx context.Context, tag transport.Tag, n int64, blocks func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.exposed[tag]
	if w.cause == nil && (x == nil || x.withdrawn) {
		return diagnostic.Errorf(transport.ErrWindow, "Withdraw of %v", tag)
	}
	for {
		if w.cause != nil {
			return w.cause
		}
		if x.read >= n {
			x.withdrawn = true // later reads fail
			if x.readers == 0 {
				x.b = nil
				return nil
			}
		}
		if w.announce(&blocks) {
			continue
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// Served implements transport.Windows.Served.
func (w *Windows) Served() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served
}

// Waits adds a waiting call to the list. The returned function removes it.
func (w *Windows) Waits(from int, tag transport.Tag) (ended func()) {
	wait := &WindowWait{from, tag, time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = append(w.waits, wait)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waits = slices.DeleteFunc(w.waits, func(other *WindowWait) bool { return other == wait })
	}
}

// Waiting returns the oldest waiting call, or nil.
func (w *Windows) Waiting() *WindowWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waits) == 0 {
		return nil
	}
	return w.waits[0]
}
