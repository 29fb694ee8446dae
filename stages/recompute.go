package stages

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
)

// Recompute returns the stage with activation checkpointing: its forward keeps
// only its inputs, and its backward runs the forward again before anything
// else. The numbers are those without it (L9, L13).
func Recompute[T any](stage Stage[T]) Stage[T] {
	spec := stage.Spec()
	r := recompute[T]{
		inner:  stage,
		inputs: len(spec.Inputs),
		in:     make([]T, len(spec.Inputs)),
		out:    make([]T, len(spec.Outputs)),
	}
	if split, ok := stage.(SplitBackward[T]); ok {
		return &splitRecompute[T]{recompute: r, split: split}
	}
	return &r
}

type recompute[T any] struct {
	inner   Stage[T]
	inputs  int
	in, out []T // scratch of one call
}

func (r *recompute[T]) Unwrap() Stage[T] { return r.inner }

// Spec is the inner one, with slots for the inputs first, and with every read of
// the forward happening in the backward too.
func (r *recompute[T]) Spec() Spec {
	spec := r.inner.Spec()
	spec.Slots += r.inputs
	spec.Recomputes = true
	reads := make([]Read, len(spec.Reads))
	for i, read := range spec.Reads {
		if read.At == 0 {
			read.At = batchctx.AtForward
		}
		if read.At&batchctx.AtForward != 0 {
			read.At |= batchctx.AtBackward
		}
		reads[i] = read
	}
	spec.Reads = reads
	return spec
}

// Forward runs the stage, keeps its inputs and discards what it saves.
func (r *recompute[T]) Forward(ctx context.Context, mb *batchctx.Microbatch[T], in, out []T) error {
	outer := mb.Scope()
	defer mb.SetScope(outer)
	if outer.Pass != batchctx.Eval && !outer.Discard {
		for i, h := range in {
			if err := mb.Save(i, batchctx.ByBackward, mb.Retain(h)); err != nil {
				return err
			}
		}
	}
	scope := outer
	scope.Slots += r.inputs
	scope.Discard = true
	mb.SetScope(scope)
	return r.inner.Forward(ctx, mb, in, out)
}

// Backward runs the forward again, then the backward.
func (r *recompute[T]) Backward(ctx context.Context, mb *batchctx.Microbatch[T], gradOut, gradIn []T) error {
	outer := mb.Scope()
	defer mb.SetScope(outer)
	if err := r.again(ctx, mb); err != nil {
		return err
	}
	return r.inner.Backward(ctx, mb, gradOut, gradIn)
}

// again runs the forward in a Recompute pass, so that what it saves is there
// for the backward, and leaves the scope at the inner stage's.
func (r *recompute[T]) again(ctx context.Context, mb *batchctx.Microbatch[T]) error {
	whole := false
	defer func() {
		clear(r.in)
		if !whole {
			abandon(mb, r.out)
		}
	}()
	for i := range r.in {
		h, err := mb.Take(i)
		if err != nil {
			return err
		}
		r.in[i] = h
	}
	scope := mb.Scope()
	scope.Slots += r.inputs
	inner := scope
	inner.Pass = batchctx.Recompute
	mb.SetScope(inner)
	if err := r.inner.Forward(ctx, mb, r.in, r.out); err != nil {
		return err
	}
	if err := release(mb, r.out, 0); err != nil {
		return err
	}
	mb.SetScope(scope)
	whole = true
	return nil
}

// splitRecompute recomputes in I; W finds what the recompute saved for it.
type splitRecompute[T any] struct {
	recompute[T]
	split SplitBackward[T]
}

func (r *splitRecompute[T]) BackwardInput(ctx context.Context, mb *batchctx.Microbatch[T], gradOut, gradIn []T) error {
	outer := mb.Scope()
	defer mb.SetScope(outer)
	if err := r.again(ctx, mb); err != nil {
		return err
	}
	return r.split.BackwardInput(ctx, mb, gradOut, gradIn)
}

func (r *splitRecompute[T]) BackwardWeight(ctx context.Context, mb *batchctx.Microbatch[T]) error {
	outer := mb.Scope()
	defer mb.SetScope(outer)
	scope := outer
	scope.Slots += r.inputs
	mb.SetScope(scope)
	return r.split.BackwardWeight(ctx, mb)
}
