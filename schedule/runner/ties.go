package runner

import (
	"context"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// A tied parameter has several uses, each with its own accumulator (L9). At step end the rank of the
// first use, the owner, adds them in stage order, and every other use then receives the total, even if
// all uses are on one rank: each may have its own copy of the weight. All ranks process the same list
// of ties in the same order, so that links without capacity do not deadlock.

// addTied completes the reductions over replicas, and adds the uses of tied parameters.
func (r *worker[T]) addTied(ctx context.Context) error {
	if r.params.shared == nil {
		return r.addUses(ctx)
	}
	for s := range r.calls.Stages {
		if err := r.waitReduced(s); err != nil {
			return err
		}
	}
	return r.params.shared.AddTied(ctx)
}

// waitReduced waits for the reduction of a stage's gradients.
func (r *worker[T]) waitReduced(s int) error {
	if err := r.params.shared.WaitReduced(s); err != nil {
		return r.locate(schedule.NewAction(schedule.ReduceGrad, s, 0), err)
	}
	return nil
}

// addUses adds every use to its owner, and then sends every use the total.
func (r *worker[T]) addUses(ctx context.Context) error {
	for _, tie := range r.params.ties {
		if err := r.applyUse(ctx, transport.Use, tie.Use, tie.Use, tie.Owner, r.params.grads.Add); err != nil {
			return err
		}
	}
	for _, tie := range r.params.ties {
		if err := r.applyUse(ctx, transport.Total, tie.Use, tie.Owner, tie.Use, r.params.replace); err != nil {
			return err
		}
	}
	return nil
}

// applyUse transfers the gradient of the use from to the rank of the use to. There it calls apply
// with to's gradient as dst and the transferred one as src. named is the use that identifies the
// transfer.
func (r *worker[T]) applyUse(ctx context.Context, content transport.Content, named, from, to effects.Use, apply func(dst, src T) error) error {
	p := &r.params
	tag := transport.Tag{Step: r.step, Content: content, Stage: named.Stage, Param: named.Param}
	switch sender, receiver := p.rankOf(from), p.rankOf(to); {
	case sender == r.calls.Rank && receiver == r.calls.Rank:
		return apply(p.gradient(to), p.gradient(from))
	case sender == r.calls.Rank:
		r.links.lent = append(r.links.lent[:0], p.gradient(from))
		if err := r.links.send(ctx, receiver, tag, r.links.lent); err != nil {
			return err
		}
		return r.links.wait(ctx, receiver, tag)
	case receiver == r.calls.Rank:
		h, err := r.links.receive(ctx, sender, tag, 1, 0)
		if err != nil {
			return err
		}
		if err := apply(p.gradient(to), h[0]); err != nil {
			return err
		}
		_, err = r.calls.Space.Release(h[0])
		clear(h)
		return err
	}
	return nil
}
