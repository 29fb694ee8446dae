package placement

import (
	"context"
	"slices"
)

// dust is which part of the bound small buffers are at most, all that are alive at once,
// to be left out of a first search.
const dust = 64

// coarse searches for a layout as low as is wanted without the smallest buffers, which are
// placed around the others where these fit. Small buffers are seldom in each other's way,
// but there are many of them, and a search that places one too low finds out late.
func (r *race) coarse(ctx context.Context, spend int64) {
	if r.over(ctx) {
		return
	}
	levels := r.levels()
	if len(levels) == 0 {
		return
	}
	share := spend / int64(len(levels))
	for _, least := range levels {
		if r.over(ctx) || share < 4 { // a race without nodes would have those of the default
			return
		}
		var large Problem
		var fixed []int64
		for i, b := range r.grid.problem.Buffers {
			if b.Size >= least || r.grid.where(i) >= 0 {
				large.Buffers = append(large.Buffers, b)
				fixed = append(fixed, r.grid.where(i))
			}
		}
		sub := newRace(&large, Options{Capacity: r.wanted, Nodes: share / 4 * 3, Seed: r.seed})
		sub.grid.fixed = fixed
		sub.greedy(ctx)
		sub.reorder(ctx, sub.left/8, longEnough)
		sub.exact(ctx, sub.left)
		if r.left -= share/4*3 - max(sub.left, 0); sub.offsets != nil && sub.height <= r.wanted {
			r.around(ctx, least, sub.offsets, share/4)
		}
	}
}

// levels returns the least sizes of what is searched, when ever more small ones are left
// out.
func (r *race) levels() (levels []int64) {
	all := r.grid.problem.Buffers
	sizes := make([]int64, len(all))
	for i := range all {
		sizes[i] = all[i].Size
	}
	slices.Sort(sizes)
	for _, least := range slices.Compact(sizes)[1:] {
		small := Problem{slices.DeleteFunc(slices.Clone(all), func(b Buffer) bool { return b.Size >= least })}
		if small.Bound() > r.grid.bound/dust {
			break
		}
		levels = append(levels, least)
	}
	return levels
}

// around places the small buffers around the large ones.
func (r *race) around(ctx context.Context, least int64, large []int64, spend int64) {
	g := *r.grid
	g.fixed = make([]int64, len(g.problem.Buffers))
	for i, b := range g.problem.Buffers {
		if g.fixed[i] = r.grid.where(i); b.Size >= least || g.fixed[i] >= 0 {
			g.fixed[i], large = large[0], large[1:]
		}
	}
	const method = "exact search of the large ones, the others around them"
	offsets := make([]int64, len(g.fixed))
	for _, recipe := range recipes {
		if r.over(ctx) || spend <= 0 {
			return
		}
		spend -= r.round()
		r.left -= r.round()
		if height := g.place(ctx, r.taken, g.order(recipe), recipe.fit, offsets); height != noLimit {
			r.offer(offsets, height, method)
		}
	}
	if r.over(ctx) {
		return
	}
	offsets, o, nodes := search(ctx, &g, r.wanted, spend, r.seed)
	if r.left -= nodes; o == solved {
		r.offer(offsets, g.height(offsets), method)
	}
}

// where returns where a buffer must lie, below 0 for anywhere.
func (g *grid) where(buffer int) int64 {
	if g.fixed == nil {
		return -1
	}
	return g.fixed[buffer]
}
