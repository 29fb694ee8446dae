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
// that are made once in a step, by an action of the plan (L14). The stage declares in its
// Spec how many there are.
type Quantizer[T any] interface {
	// QuantizeWeights makes the copies for the forward (as many as Spec.ForwardWeights) and
	// for the backward (Spec.BackwardWeights), zero on entry, in buffers of class FP8.
	// Handles put there are handed over: the step ends them with the last action that
	// reads them. Until then Microbatch.ForwardWeight and BackwardWeight lend them to the
	// stage. backward is nil where the stage has no backward in this step. Where
	// call.InputGradient says that nobody wants the gradient of the stage's input, the
	// first Spec.InputWeights of backward stay zero.
	QuantizeWeights(ctx context.Context, call batchctx.Quantization[T], forward, backward []T) error
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
