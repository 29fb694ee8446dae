package placement

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// reordering improves a greedy layout by squeaky wheel optimization (Joslin and Clements 1999):
// a buffer that ended too high is moved forward in the order, and all buffers are placed again. Buffers
// that are hard to place for any reason are thus placed early.
type reordering struct {
	grid    *grid
	recipe  recipe
	rng     *rand.Rand
	order   []int32
	line    []float64 // by buffer, its sort key
	offsets []int64

	best  []float64 // line of the lowest layout
	least int64     // height of the lowest layout
	stale int       // rounds since the lowest layout was found
}

// patience is the number of rounds without a lower layout after which a reordering returns to the order
// that gave the lowest one.
const patience = 10

func newReordering(g *grid, r recipe, seed uint64) *reordering {
	n := len(g.problem.Buffers)
	s := &reordering{grid: g, recipe: r, rng: rand.New(rand.NewPCG(seed, uint64(n))), order: g.order(r),
		line: make([]float64, n), offsets: make([]int64, n), best: make([]float64, n), least: noLimit}
	for place, i := range s.order {
		s.line[i] = float64(place)
	}
	return s
}

// round places all buffers once, and returns the height, or noLimit if ctx ended.
func (s *reordering) round(ctx context.Context, o *occupied) (height int64) {
	slices.SortFunc(s.order, func(x, y int32) int {
		return cmp.Or(cmp.Compare(s.line[x], s.line[y]), cmp.Compare(x, y))
	})
	height = s.grid.place(ctx, o, s.order, s.recipe.fit, s.offsets)
	if s.stale++; height <= s.least {
		if height < s.least {
			s.stale = 0
		}
		s.least = height
		copy(s.best, s.line)
	} else if s.stale%patience == 0 {
		copy(s.line, s.best)
	}
	s.complain(height)
	return height
}

// complain moves buffers forward if they end above a limit: the bound plus three quarters of the lowest
// layout's excess. If no buffer ends above that, the limit is the bound.
func (s *reordering) complain(height int64) {
	limit := s.grid.bound + (s.least-s.grid.bound)/4*3
	if height <= limit {
		limit = s.grid.bound
	}
	for i, at := range s.offsets {
		if at+s.grid.size(int32(i)) > limit {
			s.line[i] *= 0.3 + float64(0.6*s.rng.Float64()) // rounded identically on every machine
		}
	}
}
