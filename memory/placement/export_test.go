package placement

import "context"

// Recipes lays out a problem by every recipe.
func Recipes(p *Problem) (names []string, offsets [][]int64) {
	g := newGrid(p)
	taken := newOccupied(len(g.load))
	for _, recipe := range recipes {
		at := make([]int64, len(p.Buffers))
		g.place(context.Background(), taken, g.order(recipe), recipe.fit, at)
		names, offsets = append(names, recipe.name), append(offsets, at)
	}
	return names, offsets
}

// Ring lays out a problem as a ring buffer, and reports whether it succeeded.
func Ring(p *Problem, limit, start int64) ([]int64, bool) {
	r := newRing(p)
	found := r.layOut(context.Background(), limit, start, 100_000)
	return r.offsets, found
}

// Lasting lays out the long-lived buffers, and reports whether it succeeded. The others have offsets
// below 0.
func Lasting(p *Problem, limit, start int64) ([]int64, bool) {
	s := newLongLived(newGrid(p))
	found, _ := s.layOut(context.Background(), limit, start)
	return s.fixed, found
}

// Reordered returns the height of the first recipe, and the least height after some rounds of
// reordering.
func Reordered(p *Problem, rounds int, seed uint64) (first, least int64) {
	g := newGrid(p)
	taken := newOccupied(len(g.load))
	s := newReordering(g, recipes[0], seed)
	first = s.round(context.Background(), taken)
	for range rounds {
		s.round(context.Background(), taken)
	}
	return first, s.least
}
