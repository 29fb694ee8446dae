package placement

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
)

// race is the state of Solve: the best layout so far, and the remaining work. Work is counted in
// nodes: a node is the placement of a buffer, or of a piece of a buffer between two gaps.
type race struct {
	grid   *grid
	wanted int64 // a height that is low enough
	seed   uint64
	left   int64 // the remaining nodes
	taken  *occupied

	offsets []int64 // of the best layout
	height  int64
	method  string
	ranking []entrant     // recipes that have been run, the best first
	improve []*reordering // the best of them
}

// entrant is a recipe with its result.
type entrant struct {
	recipe recipe
	height int64
}

// finalists is the number of recipes that are improved.
const finalists = 4

// ringDivisor: another ring is tried only if it can lower the best layout by more than 1/ringDivisor of
// the bound.
const ringDivisor = 4096

func newRace(p *Problem, options Options) *race {
	g := newGrid(p)
	r := &race{grid: g, wanted: max(g.bound, options.Capacity), seed: options.Seed,
		left: options.Nodes, taken: newOccupied(len(g.load))}
	if r.left == 0 {
		r.left = DefaultNodes
	}
	return r
}

// done reports whether there is a layout that is low enough, or any layout once the work or the time is
// used up.
func (r *race) done(ctx context.Context) bool {
	return r.offsets != nil && (r.height <= r.wanted || r.left <= 0 || ctx.Err() != nil)
}

// round returns the cost of placing all buffers once, in nodes.
func (r *race) round() int64 { return int64(r.grid.pieces) }

// offer replaces the best layout if the given one is lower.
func (r *race) offer(offsets []int64, height int64, method string) {
	if r.offsets == nil || height < r.height {
		r.offsets = append(make([]int64, 0, len(offsets)), offsets...)
		r.height, r.method = height, method
	}
}

// greedy runs the recipes until the race is done, and sorts those that it ran by the height of their layouts.
func (r *race) greedy(ctx context.Context) {
	offsets := make([]int64, len(r.grid.problem.Buffers))
	for _, recipe := range recipes {
		if r.done(ctx) {
			break
		}
		r.left -= r.round()
		height := r.grid.place(ctx, r.taken, r.grid.order(recipe), recipe.fit, offsets)
		if height == noLimit { // time is up, but there must be a layout
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

// ring tries to lay out the buffers as a ring buffer. It bisects the limit: each limit is midway
// between the highest limit that failed, at first the bound - 1, and the height of the best layout. A
// failure does not prove that the limit is too low. If the first limit fails, ring gives up, so it costs
// little if the buffers do not suit a ring.
func (r *race) ring(ctx context.Context) {
	p := r.grid.problem
	if r.done(ctx) || !r.plain() {
		return
	}
	q := newRing(p)
	nodes := 4 * int64(len(p.Buffers))
	for low := r.grid.bound - 1; r.height-low > r.grid.bound/ringDivisor+1 && !r.done(ctx); {
		limit := low + (r.height-low)/2
		found := false
		for start := int64(0); start < ringStarts && !found && r.left > 0; start++ {
			nodes = min(nodes, r.left)
			found = q.layOut(ctx, limit, limit/ringStarts*start, nodes)
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

// plain reports whether the problem has no gaps and no fixed buffers.
func (r *race) plain() bool {
	return r.grid.pieces == len(r.grid.problem.Buffers) && r.grid.fixed == nil
}

// reorder improves the best recipes in turn, the best one every other turn, the next one every fourth
// turn, and so on, until the race is done.
func (r *race) reorder(ctx context.Context) {
	for turn := 1; !r.done(ctx); turn++ {
		k := min(bits.TrailingZeros(uint(turn)), finalists-1, len(r.ranking)-1, len(r.improve))
		if k == len(r.improve) {
			r.improve = append(r.improve, newReordering(r.grid, r.ranking[k].recipe, r.seed))
		}
		s := r.improve[k]
		r.left -= r.round()
		if height := s.round(ctx, r.taken); height < r.height {
			r.offer(s.offsets, height, s.recipe.name+", reordered by excess height")
		}
	}
}

// height returns the highest end of a buffer.
func (g *grid) height(offsets []int64) (height int64) {
	for i, at := range offsets {
		height = max(height, at+g.size(int32(i)))
	}
	return height
}

// solution checks the best layout and writes its certificate.
func (r *race) solution() (*Solution, error) {
	height, err := Check(r.grid.problem, r.offsets)
	if err != nil {
		return nil, fmt.Errorf("the layout by %q is wrong: %w", r.method, err)
	}
	s := &Solution{r.offsets, Certificate{Height: height, Bound: r.grid.bound, Method: r.method, Proof: "not proven: a lower layout may exist"}}
	if s.Height == s.Bound {
		s.Optimal, s.Proof = true, "the height is the bound: the most bytes alive at once"
	}
	return s, nil
}
