package stages

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
)

// Func makes a stage from functions. A stage with a nil BackwardFunc has no backward, which is
// allowed in forward-only plans and in frozen stages at the start of the model.
type Func[T any] struct {
	Declares     Spec
	Parameters   []batchctx.Use[T]
	ForwardFunc  func(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error
	BackwardFunc func(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error
	// QuantizeFunc makes the copies of weights that Declares lists.
	QuantizeFunc func(ctx context.Context, call batchctx.Quantization[T]) error

	decl *Decl[T] // used instead of Declares, except for its name, and instead of Parameters; may be nil
}

// Spec returns f.Declares or, if a Decl made the stage, the declaration of the Decl.
func (f *Func[T]) Spec() Spec {
	if f.decl == nil {
		return f.Declares
	}
	spec := f.decl.Spec()
	spec.Name = f.Declares.Name // a Decl may make several stages
	return spec
}

// Params returns Parameters or, if a Decl made the stage, the parameters that the Decl declares.
func (f *Func[T]) Params() []batchctx.Use[T] {
	if f.decl == nil {
		return f.Parameters
	}
	return f.decl.uses
}

// Forward calls f.ForwardFunc. It returns an error if that is nil.
func (f *Func[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	if f.ForwardFunc == nil {
		return fmt.Errorf("stages: %q has no ForwardFunc", f.Declares.Name)
	}
	return f.ForwardFunc(ctx, mb, in, out)
}

// Backward calls f.BackwardFunc, or does nothing if that is nil.
func (f *Func[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	if f.BackwardFunc == nil {
		return nil
	}
	return f.BackwardFunc(ctx, mb, gradOut, gradIn)
}

// QuantizeWeights calls f.QuantizeFunc. It returns an error if that is nil.
func (f *Func[T]) QuantizeWeights(ctx context.Context, call batchctx.Quantization[T]) error {
	if f.QuantizeFunc == nil {
		return fmt.Errorf("stages: %q has no QuantizeFunc", f.Declares.Name)
	}
	return f.QuantizeFunc(ctx, call)
}
