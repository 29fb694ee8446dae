package frames

import (
	"errors"

	"github.com/weir-ml/weir/internal/engine/invariants"
)

// Unwinding is the panic value of a failed call on a view. It unwinds the stage, or the source, to the
// runner, which recovers only this value.
type Unwinding struct{ Err error }

// Error returns the message with which the process ends if nothing recovers the panic, because the view
// failed on another goroutine.
func (u *Unwinding) Error() string {
	return u.Err.Error() + " (use a Microbatch, an Entry and a Quantization only on the goroutine of their call: a failure on another goroutine cannot end the step)"
}

// Unwrap returns Err.
func (u *Unwinding) Unwrap() error { return u.Err }

// Fail records why a call on a view failed, and unwinds to Recover. The first failure of a step wins.
// After that, the views reject all calls except releases.
func (c *Frames[T]) Fail(err error) {
	if c.failure == nil {
		c.failure = c.call.explain(err)
		c.generation++
	}
	panic(&Unwinding{c.failure})
}

// Generation returns the generation of the valid view. Every view has its own generation.
func (c *Frames[T]) Generation() uint64 { return c.generation }

// Failed reports whether the view with this generation has failed.
func (c *Frames[T]) Failed(generation uint64) bool {
	return c.failure != nil && c.generation == generation+1
}

// Recover is deferred by functions that call stages and sources. If a view unwinds to such a function,
// Recover sets err to the view's failure. Other panics continue, with their own stack unless a view
// had failed before.
func (c *Frames[T]) Recover(err *error) {
	if c.failure == nil {
		return
	}
	value := recover()
	if value == nil {
		return
	}
	var unwinding *Unwinding
	if cause, ok := value.(error); !ok || !errors.As(cause, &unwinding) { // the stage recovered the failure and panicked afterwards
		panic(value)
	}
	*err = c.failure // also if a group of goroutines has forwarded the panic
}

// End ends the view of the running call; err is the call's error. If the view has failed, that failure
// takes precedence, even if the stage has ignored it.
func (c *Frames[T]) End(err error) error {
	c.generation++
	if c.failure != nil {
		return c.failure
	}
	if invariants.Enabled && err == nil {
		err = c.endCall()
	}
	return c.call.explain(err)
}
