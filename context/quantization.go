package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Quantization is a stage's view of a QUANTIZE: the call that makes the step's copies of
// its weights, for no microbatch. It ends with the call, and its calls fail as those of a
// Microbatch do.
type Quantization[T any] struct {
	view       *frames.Quantization[T]
	generation uint64
	copies     Range // of the stage, or of a part of it
}

// OfWeights returns the view of the call that runs. It is the runner's.
func OfWeights[T any](view *frames.Quantization[T]) Quantization[T] {
	return Quantization[T]{view, view.Frames().Generation(), view.Copies()}
}

func (q Quantization[T]) anyway() *frames.Quantization[T] {
	if c := q.view.Frames(); c.Generation() != q.generation && !c.Failed(q.generation) {
		c.Fail(ErrEnded)
	}
	return q.view
}

// Step returns the number of the step.
func (q Quantization[T]) Step() int64 { return q.anyway().Step() }

// Seed returns the seed that random draws are keyed by, together with Step and the
// operation's name (L9). No replica has another: all make the same copies.
func (q Quantization[T]) Seed() uint64 { return q.anyway().Seed() }

// Pass returns why the stage will run: Train or Eval.
func (q Quantization[T]) Pass() Pass { return q.anyway().Pass() }

// Wants reports whether the step needs a copy. It needs no copy for a backward that it does
// not run, and none for the gradient of an input that nothing before the stage trains for.
func (q Quantization[T]) Wants(k Copy) bool { return q.anyway().Wants(q.copies, int(k)-1) }

// Put hands over a copy that the step wants, in a buffer of class FP8. The step ends it with
// the last action that reads it. Until then Microbatch.WeightCopy lends it to the stage. If
// it fails h is released.
func (q Quantization[T]) Put(k Copy, h T) { q.Check(q.anyway().Put(q.copies, int(k)-1, h)) }

// Narrow returns the view for a stage within a decorator: its copies are the given ones of
// the decorator's.
func (q Quantization[T]) Narrow(copies Range) Quantization[T] {
	q.copies = q.copies.Sub(copies.First, copies.Count)
	return q
}

// Check ends the call and the step with err, unless it is nil.
func (q Quantization[T]) Check(err error) {
	if err != nil {
		q.view.Frames().Fail(err)
	}
}

// Must returns h where err is nil, and ends the call and the step with err where it is
// not.
func (q Quantization[T]) Must(h T, err error) T {
	q.Check(err)
	return h
}

// Release ends a reference of the stage's own, such as a workspace's.
func (q Quantization[T]) Release(h T) {
	if err := q.anyway().Release(h); err != nil && !q.view.Frames().Failed(q.generation) {
		q.Check(err)
	}
}
