package placement

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// race is the best layout so far, and what is left to spend.
type race struct {
	grid     *grid
	wanted   int64 // a height that is low enough
	capacity int64 // of the options
	seed     uint64
	left     int64 // nodes
	taken    *occupied

	offsets []int64 // of the best layout
	height  int64
	method  string
	least   int64 // no layout is lower
	proof   string
	ranking []entrant     // recipes that have run, the best first
	improve []*reordering // of the best of them
}

// entrant is how far a recipe got.
type entrant struct {
	recipe recipe
	height int64
}

// finalists is how many recipes are improved.
const finalists = 4

// longEnough is after how many rounds without a gain it is the exact search's turn.
const longEnough = 100

// fine is the part of the bound that is not worth another ring.
const fine = 4096

func newRace(p *Problem, options Options) *race {
	g := newGrid(p)
	g.fixed = options.Fixed
	r := &race{grid: g, capacity: options.Capacity, wanted: max(g.bound, options.Capacity), seed: options.Seed,
		left: options.Nodes, taken: newOccupied(g.columns), least: g.bound}
	if r.left == 0 {
		r.left = defaultNodes
	}
	return r
}

// over says whether the best layout is good enough, or nothing is left to spend.
func (r *race) over(ctx context.Context) bool {
	return r.offsets != nil && (r.height <= max(r.wanted, r.least) || r.proof != "" || r.left <= 0 || ctx.Err() != nil)
}

// round is what it costs to place all buffers once.
func (r *race) round() int64 { return int64(len(r.grid.spans)) }

// offer takes a layout if it is the best.
func (r *race) offer(offsets []int64, height int64, method string) {
	if r.offsets == nil || height < r.height {
		r.offsets = append(make([]int64, 0, len(offsets)), offsets...)
		r.height, r.method = height, method
	}
}

// greedy runs all recipes.
func (r *race) greedy(ctx context.Context) {
	offsets := make([]int64, len(r.grid.problem.Buffers))
	for _, recipe := range recipes {
		if r.over(ctx) {
			break
		}
		r.left -= r.round()
		height := r.grid.place(ctx, r.taken, r.grid.order(recipe), recipe.fit, offsets)
		if height == noLimit { // The time has ended: there is a layout in any case.
			if r.offsets == nil {
				r.offer(offsets, r.grid.quick(offsets), "size classes in order of birth")
			}
			break
		}
		r.offer(offsets, height, recipe.name)
		r.ranking = append(r.ranking, entrant{recipe, height})
	}
	slices.SortStableFunc(r.ranking, func(x, y entrant) int { return cmp.Compare(x.height, y.height) })
}

// queue tries whether the buffers go round like a queue, within limits that halve the
// way between what is too low and the best layout. It costs little where they do not.
func (r *race) queue(ctx context.Context) {
	p := r.grid.problem
	if r.over(ctx) || !r.plain() {
		return
	}
	q := newRing(p)
	nodes := 4 * int64(len(p.Buffers))
	for low := r.grid.bound - 1; r.height-low > r.grid.bound/fine+1 && !r.over(ctx); {
		limit := low + (r.height-low)/2
		found := false
		for start := int64(0); start < ringStarts && !found && r.left > 0; start++ {
			nodes = min(nodes, r.left)
			found = q.within(ctx, limit, limit/ringStarts*start, nodes)
			r.left -= nodes - max(q.left, 0)
		}
		if found {
			r.offer(q.offsets, r.grid.height(q.offsets), "in order of birth around a ring")
			nodes = 40 * int64(len(p.Buffers))
			continue
		}
		if low = limit; r.method != "in order of birth around a ring" {
			return
		}
	}
}

// plain says whether the problem has no gaps, and nothing is fixed.
func (r *race) plain() bool {
	return len(r.grid.spans) == len(r.grid.problem.Buffers) && r.grid.fixed == nil
}

// reorder improves the best recipes in turns, the best one every other turn, the next
// one every fourth. It ends when so many nodes are spent, or when nothing has got lower
// for long.
func (r *race) reorder(ctx context.Context, spend int64, patience int) {
	until := r.left - spend
	for turn, lower := 1, 0; r.left > until && turn-lower <= patience && !r.over(ctx); turn++ {
		k := min(bits.TrailingZeros(uint(turn)), finalists-1, len(r.ranking)-1, len(r.improve))
		if k == len(r.improve) {
			r.improve = append(r.improve, newReordering(r.grid, r.ranking[k].recipe, r.seed))
		}
		s := r.improve[k]
		r.left -= r.round()
		if height := s.round(ctx, r.taken); height < r.height {
			lower = turn
			r.offer(s.offsets, height, s.recipe.name+", reordered by what lay too high")
		}
	}
}

// exact searches every layout there is, as far as that is in reach: of the nodes, and of
// half of the time that is left.
func (r *race) exact(ctx context.Context, spend int64) {
	if r.over(ctx) {
		return
	}
	if deadline, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	const method = "exact search"
	if r.capacity > 0 {
		offsets, outcome, nodes := search(ctx, r.grid, r.capacity, spend, r.seed)
		r.left -= nodes
		switch outcome {
		case solved:
			r.offer(offsets, r.grid.height(offsets), method)
		case impossible:
			r.proof = fmt.Sprintf("all layouts were searched: none is as low as %d", r.capacity)
			if r.capacity < r.grid.bound {
				r.proof = fmt.Sprintf("more bytes are alive at once than %d", r.capacity)
			}
		}
		return
	}
	offsets, least, nodes := minimise(ctx, r.grid, r.height, spend, r.seed)
	r.left -= nodes
	r.least = max(r.least, least)
	if offsets != nil {
		r.offer(offsets, r.grid.height(offsets), method)
	}
}

// layout checks the best layout and writes its certificate.
func (r *race) layout() (*Layout, error) {
	height, err := Check(r.grid.problem, r.offsets)
	if err != nil {
		return nil, fmt.Errorf("the layout by %q is wrong: %w", r.method, err)
	}
	l := &Layout{Offsets: r.offsets, Height: height, Bound: r.grid.bound, Method: r.method, Proof: r.proof}
	switch {
	case l.Height == l.Bound:
		l.Optimal, l.Proof = true, "the height is the bound: the most bytes alive at once"
	case l.Height == r.least:
		l.Optimal, l.Proof = true, "all layouts were searched: none is lower"
	case l.Proof != "":
	case r.least > l.Bound:
		l.Proof = fmt.Sprintf("all layouts were searched up to a height of %d: none is lower than that", r.least)
	default:
		l.Proof = "not proven: it may be that a layout is lower"
	}
	if r.grid.fixed != nil && l.Height > l.Bound {
		l.Proof = "of layouts around what is fixed: " + l.Proof
	}
	return l, nil
}
