package stages

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
)

// ErrRemote is returned by every call of a stage that Remote has made.
var ErrRemote = errors.New("stages: the stage is on another rank")

// Remote describes a stage of another rank to a runner whose process does not have
// it: what the stage declares, whether it splits its backward, and its parameters, of
// which the accumulators are not looked at. It cannot be called.
func Remote[T any](spec Spec, splits bool, params []batchctx.Use[T]) Stage[T] {
	r := remote[T]{spec: spec, params: params}
	if splits {
		return &splitRemote[T]{r}
	}
	return &r
}

type remote[T any] struct {
	spec   Spec
	params []batchctx.Use[T]
}

func (r *remote[T]) Spec() Spec { return r.spec }

func (r *remote[T]) Params() []batchctx.Use[T] { return r.params }

func (r *remote[T]) Forward(context.Context, batchctx.Microbatch[T], []T, []T) error {
	return r.refuse("Forward")
}

func (r *remote[T]) Backward(context.Context, batchctx.Microbatch[T], []T, []T) error {
	return r.refuse("Backward")
}

func (r *remote[T]) refuse(call string) error {
	return fmt.Errorf("%w: %s of %q", ErrRemote, call, r.spec.Name)
}

type splitRemote[T any] struct{ remote[T] }

func (r *splitRemote[T]) BackwardInput(context.Context, batchctx.Microbatch[T], []T, []T) error {
	return r.refuse("BackwardInput")
}

func (r *splitRemote[T]) BackwardWeight(context.Context, batchctx.Microbatch[T]) error {
	return r.refuse("BackwardWeight")
}
