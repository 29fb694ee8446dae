package stages

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
)

// Identity returns a stage without parameters that passes its inputs on as outputs, and the gradients of its
// outputs on as gradients of its inputs, without copying. Use it if a schedule has more stages than the model
// can be divided into. It can split its backward; its W is empty.
func Identity[T any](name string, ports ...Port) Stage[T] {
	return &identity[T]{Spec{Name: name, Inputs: ports, Outputs: ports}}
}

type identity[T any] struct{ spec Spec }

func (r *identity[T]) Spec() Spec { return r.spec }

// Forward returns the inputs.
func (r *identity[T]) Forward(_ context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	for i, h := range in {
		out[i] = mb.Retain(h)
	}
	return nil
}

// Backward returns the gradients of the outputs.
func (r *identity[T]) Backward(_ context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	for i := range gradIn {
		if r.spec.Inputs[i].NoGrad {
			continue
		}
		if gradOut == nil {
			return fmt.Errorf("stages: identity %q is the last stage, in which a loss must start the gradient", r.spec.Name)
		}
		gradIn[i] = mb.Retain(gradOut[i])
	}
	return nil
}

// BackwardInput computes the whole backward.
func (r *identity[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return r.Backward(ctx, mb, gradOut, gradIn)
}

// BackwardWeight does nothing.
func (r *identity[T]) BackwardWeight(context.Context, batchctx.Microbatch[T]) error { return nil }
