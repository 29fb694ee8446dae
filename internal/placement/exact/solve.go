package exact

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-ml/weir/memory/placement"
)

// firstRounds is the number of times that package placement may place all buffers before the
// search begins.
const firstRounds = 200

// Solve lays out a problem: first greedily, and then by the exact search, if the problem is
// small enough. It stops as soon as a layout meets the bound or the capacity, a layout is proven to be
// minimal, or it is proven that none is within the capacity. The layout has passed placement.Check, and
// its certificate states the proof. All errors wrap placement.ErrProblem.
func Solve(ctx context.Context, p *placement.Problem, options placement.Options) (*placement.Solution, error) {
	if options.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, options.Time)
		defer cancel()
	}
	left := options.Nodes
	if left == 0 {
		left = placement.DefaultNodes
	}
	first := options
	first.Nodes = min(left, firstRounds*int64(1+len(p.Buffers)))
	best, err := placement.Solve(ctx, p, first)
	if err != nil {
		return nil, err
	}
	left -= first.Nodes
	r := &incumbent{problem: p, options: options, best: best}
	if r.open(ctx, left) {
		left -= r.search(ctx, left/4*3)
	}
	if r.open(ctx, left) { // too hard or too large, so the remaining nodes go to other orders
		again := options
		again.Nodes, again.Seed = left, options.Seed+1
		other, err := placement.Solve(ctx, p, again)
		if err != nil {
			return nil, err
		}
		r.offer(other.Offsets, other.Method)
	}
	return r.best, r.certify()
}

// incumbent holds the best layout so far and what has been proven.
type incumbent struct {
	problem *placement.Problem
	options placement.Options
	best    *placement.Solution
	least   int64  // lower bound of the height
	proof   string // proof that no layout is within the capacity
}

// open reports whether it is worth continuing.
func (r *incumbent) open(ctx context.Context, left int64) bool {
	return r.best.Height > max(r.best.Bound, r.options.Capacity, r.least) && r.proof == "" && left > 0 && ctx.Err() == nil
}

// offer replaces the best layout if the given one is lower.
func (r *incumbent) offer(offsets []int64, method string) {
	if height := heightOf(r.problem, offsets); height < r.best.Height {
		r.best.Offsets, r.best.Height, r.best.Method = offsets, height, method
	}
}

// search spends at most spend nodes and half of the remaining time. It returns the number of nodes spent.
func (r *incumbent) search(ctx context.Context, spend int64) (nodes int64) {
	if deadline, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	const method = "exact search"
	capacity := r.options.Capacity
	if capacity > 0 && capacity < r.best.Bound {
		r.proof = fmt.Sprintf("more bytes are alive at once than %d", capacity)
		return 0
	}
	f := newField(r.problem, spend)
	if f == nil {
		return 0
	}
	if capacity == 0 {
		var offsets []int64
		if offsets, r.least, nodes = f.minimise(ctx, r.best.Height, spend, r.options.Seed); offsets != nil {
			r.offer(offsets, method)
		}
		return nodes
	}
	offsets, outcome, nodes := f.search(ctx, capacity, spend-f.nodes, r.options.Seed)
	switch outcome {
	case solved:
		r.offer(offsets, method)
	case impossible:
		r.proof = fmt.Sprintf("all layouts were searched: none is as low as %d", capacity)
	}
	return f.nodes + nodes
}

// certify checks the best layout and writes its certificate.
func (r *incumbent) certify() error {
	l := r.best
	height, err := placement.Check(r.problem, l.Offsets)
	if err != nil {
		return fmt.Errorf("the layout by %q is wrong: %w", l.Method, err)
	}
	l.Height, l.Optimal = height, height == l.Bound || height == r.least
	switch {
	case height == l.Bound:
		l.Proof = "the height is the bound: the most bytes alive at once"
	case height == r.least:
		l.Proof = "all layouts were searched: none is lower"
	case r.proof != "":
		l.Proof = r.proof
	case r.least > l.Bound:
		l.Proof = fmt.Sprintf("all layouts were searched up to a height of %d: none is lower than that", r.least)
	}
	return nil
}

// noLimit means that the number of nodes is not limited.
const noLimit = math.MaxInt64
