package runner

import (
	"context"
	"iter"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/transport"
)

// A tied parameter has several uses, each with its own accumulator (L9). At step end the rank of the
// first use, the owner, adds them in stage order, and every other use then receives the total, even if
// all uses are on one rank: each may have its own copy of the weight. All ranks process the same list
// of ties in the same order, so that links without capacity do not deadlock.

// resolveTies finds each parameter's uses, in stage order.
func (r *worker[T]) resolveTies() {
	r.owners, r.tied = effects.Ties(len(r.Stages), func(s int) iter.Seq2[int, string] {
		return func(yield func(int, string) bool) {
			for p, param := range r.Stages[s].Params {
				if param.Contributes != frames.Frozen && !yield(p, param.Name) {
					return
				}
			}
		}
	})
	r.squares = make([]float64, len(r.owners))
	for _, owner := range r.owners {
		if r.rankOf(owner) == r.Rank {
			r.measured = append(r.measured, owner)
		}
	}
}

func (r *worker[T]) param(u effects.Use) *frames.Use[T] { return &r.Stages[u.Stage].Params[u.Param] }

func (r *worker[T]) gradient(u effects.Use) T { return r.param(u).Grad }

// rankOf returns the rank of a use.
func (r *worker[T]) rankOf(u effects.Use) int { return r.Placement.Rank[u.Stage] }

// addUses adds every use to its owner, and then sends every use the total.
func (r *worker[T]) addUses(ctx context.Context) error {
	for _, tie := range r.tied {
		if err := r.applyUse(ctx, transport.Use, tie.Use, tie.Use, tie.Owner, r.gradients.Add); err != nil {
			return err
		}
	}
	for _, tie := range r.tied {
		if err := r.applyUse(ctx, transport.Total, tie.Use, tie.Owner, tie.Use, r.replace); err != nil {
			return err
		}
	}
	return nil
}

// replace sets dst to src.
func (r *worker[T]) replace(dst, src T) error {
	if r.copier != nil {
		return r.copier.Copy(dst, src)
	}
	if err := r.gradients.Zero(dst); err != nil {
		return err
	}
	return r.gradients.Add(dst, src)
}

// applyUse transfers the gradient of the use from to the rank of the use to. There it calls apply
// with to's gradient as dst and the transferred one as src. named is the use that identifies the
// transfer.
func (r *worker[T]) applyUse(ctx context.Context, content transport.Content, named, from, to effects.Use, apply func(dst, src T) error) error {
	tag := transport.Tag{Step: r.step, Content: content, Stage: named.Stage, Param: named.Param}
	switch own := r.Rank; {
	case r.rankOf(from) == own && r.rankOf(to) == own:
		return apply(r.gradient(to), r.gradient(from))
	case r.rankOf(from) == own:
		r.lent = append(r.lent[:0], r.gradient(from))
		if err := r.transport.Send(ctx, r.base+r.rankOf(to), tag, r.lent); err != nil {
			return err
		}
		return r.transport.Wait(ctx, r.base+r.rankOf(to), tag)
	case r.rankOf(to) == own:
		h, err := r.receive(ctx, r.base+r.rankOf(from), tag, 1, 0)
		if err != nil {
			return err
		}
		if err := apply(r.gradient(to), h[0]); err != nil {
			return err
		}
		_, err = r.Space.Release(h[0])
		clear(h)
		return err
	}
	return nil
}
