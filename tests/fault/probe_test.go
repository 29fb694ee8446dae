package fault_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// watch makes the beginning and the end of every call of a stage an event, and checks that out
// and gradIn are empty at the beginning.
func watch[T comparable](events *events, s stages.Stage[T]) stages.Stage[T] {
	p := probe[T]{s, events}
	if split, ok := s.(stages.SplitBackward[T]); ok {
		return splitProbe[T]{p, split}
	}
	return p
}

type probe[T comparable] struct {
	stages.Stage[T]
	events *events
}

func (p probe[T]) Unwrap() stages.Stage[T] { return p.Stage }

func (p probe[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	return p.around(out, func() error { return p.Stage.Forward(ctx, mb, in, out) })
}

func (p probe[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return p.around(gradIn, func() error { return p.Stage.Backward(ctx, mb, gradOut, gradIn) })
}

func (p probe[T]) around(to []T, call func() error) error {
	var none T
	for i, h := range to {
		if h != none {
			return fmt.Errorf("tensor %d of %d is not zero on entry", i, len(to))
		}
	}
	if err := p.events.happen(atCall); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return p.events.happen(atReturn)
}

type splitProbe[T comparable] struct {
	probe[T]
	split stages.SplitBackward[T]
}

func (p splitProbe[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return p.around(gradIn, func() error { return p.split.BackwardInput(ctx, mb, gradOut, gradIn) })
}

func (p splitProbe[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	return p.around(nil, func() error { return p.split.BackwardWeight(ctx, mb) })
}
