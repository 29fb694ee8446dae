package stages

import (
	batchctx "github.com/weir-ml/weir/context"
)

// Freeze returns the stage with all its parameters frozen: it computes no weight gradients, and
// runs no backward at all if no stage before it trains.
func Freeze[T any](stage Stage[T]) Stage[T] {
	if stage == nil {
		return nil // which a runner and Sequential reject
	}
	f := &frozen[T]{Stage: stage}
	for _, param := range Params(stage) {
		param.Contributes = batchctx.Frozen
		f.params = append(f.params, param)
	}
	return f
}

type frozen[T any] struct {
	Stage[T]
	params []batchctx.Use[T]
}

func (f *frozen[T]) Unwrap() Stage[T] { return f.Stage }

func (f *frozen[T]) Params() []batchctx.Use[T] { return f.params }

func (f *frozen[T]) Spec() Spec {
	spec := f.Stage.Spec()
	spec.Frozen = true
	return spec
}
