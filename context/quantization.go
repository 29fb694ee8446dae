package batchctx

import (
	"fmt"

	"github.com/weir-ml/weir/internal/engine/frames"
)

// Quantization is a stage's view of a QUANTIZE, the call that makes the step's copies of its weights. It
// has no microbatch. It ends with the call, and its methods fail like those of a Microbatch.
type Quantization[T any] struct {
	view[T]
	copies Range // the copies of the stage, or of a decorator's child
	params Range // the parameters of the stage, or of a decorator's child
}

// NewQuantization returns the view of the running QUANTIZE. It is called by the runner.
func NewQuantization[T any](call *frames.StageCall[T]) Quantization[T] {
	return Quantization[T]{newView(call), call.Access.Copies, call.Access.Params}
}

// Wants reports whether the step needs a copy. It needs no copies for the backward in a step
// without a backward, and none for the gradient of the input if no earlier stage trains.
func (q Quantization[T]) Wants(k Copy) bool {
	c := q.liveOrFailed()
	i, declared := q.copies.At(int(k) - 1)
	return declared && c.NeedsCopy(i)
}

// Put hands over a copy that the step wants, in a buffer of class FP8. Microbatch.WeightCopy lends
// it to the stage, and the last action that reads it releases it. After a failure h is released.
func (q Quantization[T]) Put(k Copy, h T) {
	c := q.liveOrFailed()
	i, declared := q.copies.At(int(k) - 1)
	var err error
	if declared {
		err = c.PutCopy(i, h)
	} else {
		err = fmt.Errorf("%w: copy %d of a weight, but the stage declares %d: use the keys of its own Decl", ErrUndeclared, k, q.copies.Count)
	}
	if err != nil {
		_, _ = c.Frames.Space.Release(h) // The first error is returned.
	}
	q.Check(err)
}

// Weight returns the weight of a parameter, borrowed for the call, as Microbatch.Weight does.
func (q Quantization[T]) Weight(p Param) T {
	return q.liveOrFailed().Weight(q.index("parameter", int(p), q.params))
}

// Narrow returns the view for a child of a decorator, limited to the child's copies and parameters.
func (q Quantization[T]) Narrow(child Access) Quantization[T] {
	q.copies = q.copies.Sub(child.Copies.First, child.Copies.Count).Clip(q.call.Access.Copies)
	q.params = q.params.Sub(child.Params.First, child.Params.Count).Clip(q.call.Access.Params)
	return q
}
