package placement

import "context"

// minimise looks for the least height below a given one. It returns the best layout
// that it found, nil where it found none, a height that no layout is below as far as
// that is proven, and the nodes that it spent, at most budget.
//
// The bound is tried first, then heights halfway between the highest one at which the
// search gave up and the lowest layout. In the end all that is left of the budget goes
// into the last step below that layout: it is taken, or the layout is proven to be the
// lowest, or the search gives up.
func minimise(ctx context.Context, g *grid, height, budget int64, seed uint64) (offsets []int64, least, nodes int64) {
	f := newField(g, budget)
	if f == nil {
		return nil, g.bound, 0
	}
	nodes = f.nodes
	unit := g.unit()
	least = g.bound
	tried := least - unit // the highest capacity at which nothing was found
	for capacity := least; tried+unit < height && nodes < budget && ctx.Err() == nil; {
		spend := budget - nodes
		if capacity+unit < height {
			spend = (spend + 3) / 4
		}
		found, o, n := f.search(ctx, capacity, spend, seed)
		nodes += max(n, 1)
		switch o {
		case solved:
			offsets, height = found, g.height(found)
		case impossible:
			tried, least = capacity, capacity+unit
		case gaveUp:
			tried = capacity
		}
		capacity = tried + max(unit, (height-tried)/2/unit*unit)
	}
	return offsets, least, nodes
}

// unit returns what divides all sizes and alignments. It divides the height of every
// layout in which nothing can be pushed down.
func (g *grid) unit() (unit int64) {
	for i := range g.problem.Buffers {
		b := &g.problem.Buffers[i]
		unit = divisor(unit, b.Size)
		if b.Align > 1 {
			unit = divisor(unit, b.Align)
		}
	}
	return unit
}

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// height returns the highest end of a buffer.
func (g *grid) height(offsets []int64) (height int64) {
	for i, at := range offsets {
		height = max(height, at+g.size(int32(i)))
	}
	return height
}
