package runner

import (
	"context"

	"github.com/weir-ml/weir/internal/frames"
)

// Uses of tied parameters. Each use has an accumulator of its own (L9). At step end
// they are added in stage order on the rank of the first use, the owner, and on
// several ranks every other use gets the total. All ranks go through the same list of
// ties in the same order, each doing its part, so that no link needs to hold a
// message and none waits for ever.

// resolveTies finds the uses of each parameter, in stage order.
func (r *worker[T]) resolveTies() {
	owner := map[string]use{}
	for s := range r.stages {
		for p, param := range r.stages[s].params {
			if param.Contributes == frames.Frozen {
				continue
			}
			this := use{s, p}
			if first, tied := owner[param.Name]; tied {
				r.tied = append(r.tied, tie{first, this})
			} else {
				owner[param.Name] = this
				r.owners = append(r.owners, this)
			}
		}
	}
	r.squares = make([]float64, len(r.owners))
}

func (r *worker[T]) gradient(u use) T { return r.stages[u.stage].params[u.param].Grad }

// rank returns the rank of a use.
func (r *worker[T]) rankOf(u use) int { return r.placement.Rank[u.stage] }

// addUses adds every use to its owner.
func (r *worker[T]) addUses(ctx context.Context) error {
	for _, tie := range r.tied {
		err := r.hand(ctx, Use, tie.use, tie.use, tie.owner, r.gradients.Add)
		if err != nil {
			return err
		}
	}
	return nil
}

// spreadTotals gives every use the total of its owner.
func (r *worker[T]) spreadTotals(ctx context.Context) error {
	for _, tie := range r.tied {
		if err := r.hand(ctx, Total, tie.use, tie.owner, tie.use, r.replace); err != nil {
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

// hand applies the gradient of one use to that of another one, on its rank. Named is
// the use that the transfer is called by.
func (r *worker[T]) hand(ctx context.Context, content Content, named, from, to use, apply func(dst, src T) error) error {
	tag := Tag{Step: r.step, Content: content, Stage: named.stage, Param: named.param}
	switch own := r.rank; {
	case r.rankOf(from) == own && r.rankOf(to) == own:
		return apply(r.gradient(to), r.gradient(from))
	case r.rankOf(from) == own:
		r.lent = append(r.lent[:0], r.gradient(from))
		if err := r.transport.Send(ctx, r.rankOf(to), tag, r.lent); err != nil {
			return err
		}
		return r.transport.Wait(ctx, r.rankOf(to), tag)
	case r.rankOf(to) == own:
		h, err := r.receive(ctx, r.rankOf(from), tag, 1, 0)
		if err != nil {
			return err
		}
		if err := apply(r.gradient(to), h[0]); err != nil {
			return err
		}
		_, err = r.space.Release(h[0])
		clear(h)
		return err
	}
	return nil
}
