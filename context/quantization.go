package batchctx

import (
	"fmt"

	"github.com/weir-ml/weir/internal/frames"
)

// Quantization is a stage's view of a QUANTIZE, the call that makes the step's copies of its
// weights. It has no microbatch. It ends with the call, and its methods fail in the same way as the
// methods of a Microbatch.
type Quantization[T any] struct {
	call       *frames.QuantizeCall[T]
	generation uint64
	copies     Range // of the stage, or of a decorator's child
	params     Range // of the stage, or of a decorator's child
}

// NewQuantization returns the view of the running QUANTIZE, for the runner.
func NewQuantization[T any](call *frames.QuantizeCall[T]) Quantization[T] {
	return Quantization[T]{call, call.Frames.Generation(), call.Copies(), call.Params()}
}

// liveOrFailed returns the call, and fails if the view has ended.
func (q Quantization[T]) liveOrFailed() *frames.QuantizeCall[T] {
	if f := q.call.Frames; f.Generation() != q.generation && !f.Failed(q.generation) {
		f.Fail(ErrEnded)
	}
	return q.call
}

// Step returns the number of the step.
func (q Quantization[T]) Step() int64 { return q.liveOrFailed().Frames.Step }

// Seed returns the seed of random draws, which are keyed by it, Step and the operation's name
// (L9). It is equal on all replicas, which therefore make the same copies.
func (q Quantization[T]) Seed() uint64 { return q.liveOrFailed().Frames.Seed }

// Pass returns why the stage will run: Train or Eval.
func (q Quantization[T]) Pass() Pass { return q.liveOrFailed().Pass() }

// Wants reports whether the step needs a copy. It needs no copies for the backward in a step
// without a backward, and none for the gradient of the input if no earlier stage trains.
func (q Quantization[T]) Wants(k Copy) bool {
	c := q.liveOrFailed()
	i, declared := q.copies.At(int(k) - 1)
	return declared && c.Needs(i)
}

// Put hands over a copy that the step wants, in a buffer of class FP8. Microbatch.WeightCopy lends
// it to the stage, and the last action that reads it releases it. After a failure h is released.
func (q Quantization[T]) Put(k Copy, h T) {
	c := q.liveOrFailed()
	i, declared := q.copies.At(int(k) - 1)
	var err error
	if declared {
		err = c.Put(i, h)
	} else {
		err = fmt.Errorf("%w: copy of a weight %d, but the stage declares %d: use the keys of its own Decl", ErrUndeclared, k, q.copies.Count)
	}
	if err != nil {
		_, _ = c.Frames.Space.Release(h) // The first error is returned.
	}
	q.Check(err)
}

// Weight returns the weight of a parameter, borrowed for the call, as Microbatch.Weight does.
func (q Quantization[T]) Weight(p Param) T {
	c := q.liveOrFailed()
	i, declared := q.params.At(int(p) - 1)
	if !declared {
		c.Frames.Fail(fmt.Errorf("%w: parameter %d, but the stage declares %d: use the keys of its own Decl", ErrUndeclared, p, q.params.Count))
	}
	return c.Weight(i)
}

// Narrow returns the view for a child of a decorator, limited to the child's copies and parameters.
func (q Quantization[T]) Narrow(child Access) Quantization[T] {
	q.copies = q.copies.Sub(child.Copies.First, child.Copies.Count).Clip(q.call.Copies())
	q.params = q.params.Sub(child.Params.First, child.Params.Count).Clip(q.call.Params())
	return q
}

// Check ends the call and the step with err, unless it is nil.
func (q Quantization[T]) Check(err error) {
	if err != nil {
		q.call.Frames.Fail(err)
	}
}

// Must returns h if err is nil, and ends the call and the step with err if it is not.
func (q Quantization[T]) Must(h T, err error) T {
	q.Check(err)
	return h
}

// Release ends a reference that the stage owns, such as a workspace's.
func (q Quantization[T]) Release(h T) {
	f := q.liveOrFailed().Frames
	if _, err := f.Space.Release(h); err != nil && !f.Failed(q.generation) {
		f.Fail(err)
	}
}
