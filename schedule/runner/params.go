package runner

import (
	"fmt"
	"iter"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/schedule/runner/internal/replicas"
	"github.com/weir-ml/weir/transport"
)

// params holds a rank's parameters and the measurements of their gradients.
type params[T any] struct {
	calls   *calls.Caller[T] // has the uses of all parameters
	grads   Gradients[T]
	copier  Copier[T]           // nil if grads is not a Copier
	sharded Sharded[T]          // nil if grads is not Sharded
	shared  *replicas.Shared[T] // nil if there is only one replica, or the rank has no parameters to share
	level   int                 // Replicas.Shard

	ties     []effects.Tie
	owners   []effects.Use // the first use of each parameter that trains, on any rank
	measured []effects.Use // the owners on this rank
	squares  []float64     // by owner: the sum of squares of its gradient
	sums     []float64     // results of measure in the last training step
	list     []T           // scratch: the gradients to measure
}

// open finds the first use of each parameter that trains, and the ties, in stage order.
func (p *params[T]) open(caller *calls.Caller[T], grads Gradients[T], level int) {
	p.calls, p.grads, p.level = caller, grads, level
	p.copier, _ = grads.(Copier[T])
	p.sharded, _ = grads.(Sharded[T])
	p.owners, p.ties = effects.Ties(len(caller.Stages), func(s int) iter.Seq2[int, string] {
		return func(yield func(int, string) bool) {
			for i, use := range caller.Stages[s].Params {
				if use.Contributes != frames.Frozen && !yield(i, use.Name) {
					return
				}
			}
		}
	})
	p.squares = make([]float64, len(p.owners))
	for _, owner := range p.owners {
		if p.rankOf(owner) == caller.Rank {
			p.measured = append(p.measured, owner)
		}
	}
}

// rankOf returns the rank of a use.
func (p *params[T]) rankOf(u effects.Use) int { return p.calls.Placement.Rank[u.Stage] }

// gradient returns the gradient that a use declares.
func (p *params[T]) gradient(u effects.Use) T { return p.calls.Stages[u.Stage].Params[u.Param].Grad }

// gradientName returns the name of a use's gradient in errors.
func (p *params[T]) gradientName(u effects.Use) string {
	st := &p.calls.Stages[u.Stage]
	return fmt.Sprintf("the gradient of %q of stage %d (%s)", st.Params[u.Param].Name, u.Stage, st.Spec.Name)
}

// makeWhole allocates the buffers for a stage's whole parameters, which the frames hold: gradients at
// ZERO_GRAD, weights at UNSHARD. It allocates none if the level does not shard them.
func (p *params[T]) makeWhole(place effects.BufferKind, s int) error {
	return p.calls.Frames.PutParams(place, s, func(i int) (h T, made bool, err error) {
		use := &p.calls.Stages[s].Params[i]
		if p.level < 2 || p.level < 3 && place == effects.Gathered || place == effects.Accumulator && use.Contributes == frames.Frozen {
			return h, false, nil
		}
		like := use.Grad
		if place == effects.Gathered {
			like = use.Weight
		}
		h, err = p.sharded.New(memory.Unsharded, like, replicas.Elements(p.sharded, use))
		return h, err == nil, err
	})
}

func (p *params[T]) zero(g T) error { return p.grads.Zero(g) }

// zeroUnwritten zeroes those gradients of a stage's parameters that this step has not written (L5).
func (p *params[T]) zeroUnwritten(s int) error {
	held := p.calls.Frames
	for i, use := range p.calls.Stages[s].Params {
		if use.Contributes == frames.Frozen || held.Written(s, i) {
			continue
		}
		if err := p.grads.Zero(held.Grad(s, i)); err != nil {
			return err
		}
		held.SetWritten(s, i)
	}
	return nil
}

// replace sets the gradient dst to src.
func (p *params[T]) replace(dst, src T) error {
	if p.copier != nil {
		return p.copier.Copy(dst, src)
	}
	if err := p.grads.Zero(dst); err != nil {
		return err
	}
	return p.grads.Add(dst, src)
}

// measure appends measurements of the gradients whose owner is on this rank: first the number of
// parts of every gradient, and then the sum of squares of every part. A gradient has one part, or, if
// there are several replicas, the parts that the replica owns.
func (p *params[T]) measure(to []float64) (_ []float64, err error) {
	if p.shared != nil {
		return p.shared.Measure(to, p.measured)
	}
	p.list = p.list[:0]
	for _, owner := range p.measured {
		to = append(to, 1)
		p.list = append(p.list, p.gradient(owner))
	}
	n := len(to)
	to = append(to, make([]float64, len(p.list))...)
	if all, ok := p.grads.(SquareSummer[T]); ok {
		return to, all.SumsOfSquares(to[n:], p.list)
	}
	for i, g := range p.list {
		if to[n+i], err = p.grads.SumSquares(g); err != nil {
			return to, err
		}
	}
	return to, nil
}

// unchanged returns an error for a gradient whose sum of squares has changed since the step.
func (p *params[T]) unchanged() error {
	all, err := p.measure(p.sums)
	if err != nil {
		return fmt.Errorf("runner: the gradients can no longer be read: %w", err)
	}
	n := len(p.sums)
	p.sums = all[:n] // keeps the capacity
	for i, was := range p.sums {
		if now := all[n+i]; now != was {
			return fmt.Errorf("%w: the sum of squares of %s was %.6g and is %.6g: change gradients only in the function of Update; the step has already added those of replicas",
				ErrOverwritten, p.gradientName(p.measuredAt(i)), was, now)
		}
	}
	return nil
}

// measuredAt returns the owner of the gradient to which element i of p.sums belongs.
func (p *params[T]) measuredAt(i int) effects.Use {
	k := 0
	for i -= len(p.measured); i >= int(p.sums[k]); k++ {
		i -= int(p.sums[k])
	}
	return p.measured[k]
}

// addSquares adds a rank's measurements from a training step to the squares of the gradients. If
// there are several replicas, it is called in replica order, which is the order of the parts.
func (p *params[T]) addSquares(rank int, measured []float64) error {
	owned := func(owner effects.Use) bool { return p.rankOf(owner) == rank%p.calls.Placement.Ranks }
	n := 0
	for _, owner := range p.owners {
		if owned(owner) {
			n++
		}
	}
	if len(measured) < n {
		return fmt.Errorf("%w: rank %d has fewer parameters than its stages declare here", transport.ErrRanks, rank)
	}
	counts, sums := measured[:n], measured[n:]
	for i, owner := range p.owners {
		if !owned(owner) {
			continue
		}
		if !(counts[0] >= 0 && counts[0] <= float64(len(sums))) {
			return fmt.Errorf("%w: rank %d sends %v parts of a parameter", transport.ErrRanks, rank, counts[0])
		}
		parts := int(counts[0])
		for _, sum := range sums[:parts] {
			p.squares[i] += sum
		}
		counts, sums = counts[1:], sums[parts:]
	}
	if len(sums) > 0 {
		return fmt.Errorf("%w: rank %d has more parameters than its stages declare here", transport.ErrRanks, rank)
	}
	return nil
}
