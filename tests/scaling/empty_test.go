package scaling_test

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// empty is a stage that computes nothing. Its forward saves its input and allocates an output; its
// backward takes the input and allocates a gradient.
type empty[T any] struct {
	alloc       func(class memory.Class) (T, error)
	first, last bool
}

func (e *empty[T]) Spec() stages.Spec {
	spec := stages.Spec{Name: "empty", Slots: []string{"x"}}
	if e.first {
		spec.Reads = []stages.Read{{Part: "tokens"}}
	} else {
		spec.Inputs = []stages.Port{{Name: "x"}}
	}
	if !e.last {
		spec.Outputs = []stages.Port{{Name: "x"}}
	}
	return spec
}

func (e *empty[T]) Forward(_ context.Context, mb batchctx.Microbatch[T], in, out []T) (err error) {
	if !e.first {
		mb.Save(1, mb.Retain(in[0]))
	}
	if !e.last {
		out[0], err = e.alloc(memory.Activation)
	}
	return err
}

func (e *empty[T]) Backward(_ context.Context, mb batchctx.Microbatch[T], _, gradIn []T) (err error) {
	if !e.first {
		_ = mb.Take(1)
		gradIn[0], err = e.alloc(memory.ActGrad)
	}
	return err
}

// emptySource returns the entries of empty stages.
func emptySource[T any](alloc func(class memory.Class) (T, error)) runner.Source[T] {
	return runner.Indexed(func(_ context.Context, entry batchctx.Entry[T]) error {
		if entry.Wants("tokens") {
			entry.Put("tokens", entry.Must(alloc(memory.Entry)))
		}
		return nil
	})
}
