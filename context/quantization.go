package batchctx

import (
	"fmt"

	"github.com/weir-ml/weir/internal/engine/frames"
)

// Quantization is a stage's view of a QUANTIZE, the call that makes the step's copies of the stage's weights.
// It has no microbatch. It ends with the call, and its methods fail like those of a Microbatch.
type Quantization[T any] frames.QuantizationView[T]

func (q Quantization[T]) view() view[T] { return view[T]{frames.QuantizationView[T](q).View()} }

// live returns the call, the copies of weights and the parameters, and fails if the view has ended.
func (q Quantization[T]) live() (c *frames.StageCall[T], copies, params Range) {
	copies, params = frames.QuantizationView[T](q).Declared()
	return q.view().LiveOrFailed(), copies, params
}

// Check ends the call and the step with err, unless err is nil.
func (q Quantization[T]) Check(err error) { q.view().check(err) }

// Must returns h if err is nil, and ends the call and the step with err if it is not.
func (q Quantization[T]) Must(h T, err error) T {
	q.Check(err)
	return h
}

// Step returns the number of the step.
func (q Quantization[T]) Step() int64 { return q.view().LiveOrFailed().Frames.Step }

// Seed returns the seed of random draws (L9). It is the same on all replicas, so they make the same copies
// of weights.
func (q Quantization[T]) Seed() uint64 { return q.view().LiveOrFailed().Frames.Config.Seed }

// Pass returns the reason why the stage will run (L13).
func (q Quantization[T]) Pass() Pass { return q.view().LiveOrFailed().Access.Pass }

// Release releases a reference that the stage owns, such as one to a workspace.
func (q Quantization[T]) Release(h T) { q.view().release(h) }

// Wants reports whether the step needs a copy. A step without a backward needs no copies for the backward,
// and no step needs copies for the gradient of the input if no earlier stage trains.
func (q Quantization[T]) Wants(k Copy) bool {
	c, copies, _ := q.live()
	i, declared := copies.At(int(k) - 1)
	return declared && c.NeedsCopy(i)
}

// Put hands over a copy that the step wants, in a buffer of class FP8. Microbatch.WeightCopy lends
// it to the stage, and the last action that reads it releases it. If Put fails, h is released.
func (q Quantization[T]) Put(k Copy, h T) {
	c, copies, _ := q.live()
	i, declared := copies.At(int(k) - 1)
	var err error
	if declared {
		err = c.PutCopy(i, h)
	} else {
		err = fmt.Errorf("%w: copy %d of a weight, but the stage declares %d: use the keys of its own Decl", ErrUndeclared, k, copies.Count)
	}
	if err != nil {
		_, _ = c.Frames.Config.Space.Release(h) // the step ends with err, the first error
	}
	q.Check(err)
}

// Weight returns the weight of a parameter, borrowed for the call, as Microbatch.Weight does.
func (q Quantization[T]) Weight(p Param) T {
	c, _, params := q.live()
	return c.Weight(q.view().index("parameter", int(p), params))
}

// Narrow returns the view for a child of a decorator, limited to the child's copies and parameters.
func (q Quantization[T]) Narrow(child Access) Quantization[T] {
	return Quantization[T](frames.QuantizationView[T](q).Narrow(child.Copies, child.Params))
}
