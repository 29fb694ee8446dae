package stages

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
)

// Trainable is the ability to have parameters. Microbatch.Grad takes the index
// of a parameter in Params. The list is asked for once and must not change.
type Trainable[T any] interface {
	Params() []batchctx.Use[T]
}

// SplitBackward is the ability to compute the input gradient (I) and the weight
// gradients (W) in two calls. BackwardInput may save for W (ByWeight). A
// decorator that has this ability implements it itself: it is never looked for
// underneath, because a call must not go around a decorator.
type SplitBackward[T any] interface {
	BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error
	BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error
}

// Quantizer is the ability to compute on copies of the weights, in low precision, say,
// that are made once in a step, by an action of the plan (L14). The stage declares them in
// its Spec.
type Quantizer[T any] interface {
	// QuantizeWeights makes those of Spec.WeightCopies that call.Wants, in buffers of class
	// FP8, and hands them over with call.Put. The step ends each with the last action that
	// reads it. Until then Microbatch.WeightCopy lends it to the stage.
	QuantizeWeights(ctx context.Context, call batchctx.Quantization[T]) error
}

// Unwrapper is a decorator of one stage.
type Unwrapper[T any] interface {
	Unwrap() Stage[T]
}

// As finds an ability of a stage, or of what it decorates, the outermost first.
// Use it for abilities that describe a stage or are of no microbatch, not for calls.
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

// Params returns the parameters of a stage, nil where it has none.
func Params[T any](stage Stage[T]) []batchctx.Use[T] {
	if trainable, ok := As[Trainable[T]](stage); ok {
		return trainable.Params()
	}
	return nil
}
