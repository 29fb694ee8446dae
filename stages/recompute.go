package stages

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
)

// Recompute returns the stage with activation checkpointing: its forward keeps only its inputs,
// and its backward first runs the forward again. The numbers do not change (L9, L13).
func Recompute[T any](stage Stage[T]) Stage[T] {
	if stage == nil {
		return nil // which a runner and Sequential reject
	}
	spec := stage.Spec()
	r := recompute[T]{
		inner: stage,
		slots: len(spec.Slots),
		in:    make([]T, len(spec.Inputs)),
		out:   newPassing[T](spec.Outputs, false),
	}
	if split, ok := stage.(SplitBackward[T]); ok {
		return &splitRecompute[T]{recompute: r, split: split}
	}
	return &r
}

type recompute[T any] struct {
	inner Stage[T]
	slots int        // number of the inner stage's slots, which follow one slot per input
	in    []T        // the inputs, during one call
	out   passing[T] // the outputs of the recomputed forward, which are not used
}

// child returns the access of the inner stage within outer.
func (r *recompute[T]) child(outer batchctx.Access) batchctx.Access {
	outer.Slots = outer.Slots.Sub(len(r.in), r.slots)
	return outer
}

func (r *recompute[T]) Unwrap() Stage[T] { return r.inner }

// Spec returns the inner stage's Spec, with a slot for each input before the other slots, and
// with the reads of the forward also declared for the backward.
func (r *recompute[T]) Spec() Spec {
	spec := r.inner.Spec()
	var slots []string
	for _, port := range spec.Inputs {
		slots = append(slots, "input "+port.Name)
	}
	spec.Consumers = append(make([]batchctx.Consumer, len(slots)), spec.Consumers...)
	spec.Slots = append(slots, spec.Slots...)
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

// Forward runs the stage, keeps its inputs and discards its saved tensors. It keeps no inputs in
// Eval, or inside another Recompute, which would discard them.
func (r *recompute[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	outer := mb.Access()
	defer mb.SetAccess(outer)
	if outer.Pass != batchctx.Eval && !outer.Discard {
		for i, h := range in {
			r.keep(mb, batchctx.Slot(i+1), h)
		}
	}
	access := r.child(outer)
	access.Discard = true
	mb.SetAccess(access)
	return r.inner.Forward(ctx, mb, in, out)
}

// keep saves an input until the backward.
func (r *recompute[T]) keep(mb batchctx.Microbatch[T], slot batchctx.Slot, h T) {
	kept, saved := mb.Retain(h), false
	defer func() {
		if !saved {
			mb.ReleaseAfterFailure(kept, false)
		}
	}()
	mb.SaveFor(batchctx.ByBackward, slot, kept)
	saved = true
}

// Backward runs the forward again, then the backward.
func (r *recompute[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	outer := mb.Access()
	defer mb.SetAccess(outer)
	if err := r.runForward(ctx, mb); err != nil {
		return err
	}
	return r.inner.Backward(ctx, mb, gradOut, gradIn)
}

// runForward runs the forward in a Recompute pass, so that its saved tensors are available for
// the backward, and leaves the access set to the inner stage's.
func (r *recompute[T]) runForward(ctx context.Context, mb batchctx.Microbatch[T]) error {
	defer func() {
		clear(r.in)
		r.out.abandon(mb)
	}()
	for i := range r.in {
		r.in[i] = mb.Take(batchctx.Slot(i + 1))
	}
	access := r.child(mb.Access())
	recomputed := access
	recomputed.Pass = batchctx.Recompute
	mb.SetAccess(recomputed)
	if err := r.inner.Forward(ctx, mb, r.in, r.out.open()); err != nil {
		return err
	}
	r.out.hold(mb)
	mb.SetAccess(access)
	r.out.drop(mb)
	return nil
}

// splitRecompute recomputes in I; W takes the tensors that the recompute saved for it.
type splitRecompute[T any] struct {
	recompute[T]
	split SplitBackward[T]
}

func (r *splitRecompute[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	outer := mb.Access()
	defer mb.SetAccess(outer)
	if err := r.runForward(ctx, mb); err != nil {
		return err
	}
	return r.split.BackwardInput(ctx, mb, gradOut, gradIn)
}

func (r *splitRecompute[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	outer := mb.Access()
	defer mb.SetAccess(outer)
	mb.SetAccess(r.child(outer))
	return r.split.BackwardWeight(ctx, mb)
}
