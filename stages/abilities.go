package stages

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
)

// Trainable is implemented by stages with parameters. Microbatch.Grad takes the number of a parameter in
// Params, counted from 1. The list is requested once and must not change.
type Trainable[T any] interface {
	Params() []batchctx.Use[T]
}

// SplitBackward is implemented by stages that compute the input gradient (I) and the weight gradients (W)
// in two calls. BackwardInput may save tensors for BackwardWeight (ByWeight). A decorator that supports
// the split must implement this interface itself: a runner does not look for it in the decorated stage,
// because a call must not bypass a decorator.
type SplitBackward[T any] interface {
	BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error
	BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error
}

// Quantizer is implemented by stages that compute on copies of their weights, for instance in
// low precision. An action of the plan makes the copies once per step (L14). The stage declares
// them in its Spec.
type Quantizer[T any] interface {
	// QuantizeWeights makes the copies in Spec.WeightCopies for which call.Wants is true, in
	// buffers of class FP8, and passes them to call.Put. The step releases each copy after the
	// last action that reads it. Until then Microbatch.WeightCopy lends it to the stage.
	QuantizeWeights(ctx context.Context, call batchctx.Quantization[T]) error
}

// Unwrapper is implemented by decorators of a single stage.
type Unwrapper[T any] interface {
	Unwrap() Stage[T]
}

// As returns the outermost implementation of interface A, by the stage or by a stage that it decorates,
// and whether there is one. Use it for interfaces that describe a stage, not for those that process a
// microbatch.
func As[A any, T any](stage Stage[T]) (A, bool) {
	for stage != nil {
		if ability, ok := stage.(A); ok {
			return ability, true
		}
		decorator, ok := stage.(Unwrapper[T])
		if !ok {
			break
		}
		stage = decorator.Unwrap()
	}
	var none A
	return none, false
}

// Params returns the parameters of a stage, or nil if it has none.
func Params[T any](stage Stage[T]) []batchctx.Use[T] {
	if trainable, ok := As[Trainable[T]](stage); ok {
		return trainable.Params()
	}
	return nil
}
