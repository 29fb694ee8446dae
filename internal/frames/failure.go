package frames

import "errors"

// Unwinding is what a call on a view panics with where it cannot do what it is asked. It
// unwinds the stage, or the source, to the runner, which recovers it and nothing else.
type Unwinding struct{ Err error }

// Error is what the process ends with where nothing recovers it: on another goroutine.
func (u *Unwinding) Error() string {
	return u.Err.Error() + " (a Microbatch, an Entry and a Quantization are for the goroutine that they were given to: a call that fails on another one cannot end the step)"
}

// Unwrap returns Err.
func (u *Unwinding) Unwrap() error { return u.Err }

// Fail records why a call on a view failed, and unwinds to Recover. The first failure of
// a step wins. From then on the views refuse everything but to release.
func (c *Frames[T]) Fail(err error) {
	if c.failure == nil {
		c.failure = err
		c.generation++
	}
	panic(&Unwinding{c.failure})
}

// Generation is the number of the view that is valid now. Every view has another one.
func (c *Frames[T]) Generation() uint64 { return c.generation }

// Failed reports whether the view of a generation is the one that has failed.
func (c *Frames[T]) Failed(generation uint64) bool {
	return c.failure != nil && c.generation == generation+1
}

// Recover is deferred around calls of stages and sources. It sets err to the failure of a
// view that unwinds. Another panic goes on, with its own stack.
func (c *Frames[T]) Recover(err *error) {
	if c.failure == nil {
		return
	}
	value := recover()
	if value == nil {
		return
	}
	var unwinding *Unwinding
	if cause, ok := value.(error); !ok || !errors.As(cause, &unwinding) { // of a stage that has swallowed the failure
		panic(value)
	}
	*err = c.failure // also where a group of goroutines has brought it here
}

// End ends the view of the running call, which has returned err. A failure of the view
// comes first, even where the stage has swallowed it.
func (c *Frames[T]) End(err error) error {
	c.generation++
	if c.failure != nil {
		return c.failure
	}
	return err
}
