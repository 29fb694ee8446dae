package placement

import "slices"

// grid is a problem as planners see it.
type grid struct {
	problem *Problem
	spans   [][]Span // by buffer
	pieces  int      // spans of all buffers
	load    []int64  // by column, the bytes alive
	bound   int64    // the most of them
	fixed   []int64  // by buffer, where it must lie if not below 0; or nil
	full    []int32  // by column, at how many columns before it the load is the bound
}

func newGrid(p *Problem) *grid {
	g := &grid{problem: p}
	g.spans, g.load = p.Columns()
	for _, spans := range g.spans {
		g.pieces += len(spans)
	}
	if len(g.load) > 0 {
		g.bound = slices.Max(g.load)
	}
	g.full = make([]int32, len(g.load)+1)
	for c, load := range g.load {
		g.full[c+1] = g.full[c]
		if load == g.bound {
			g.full[c+1]++
		}
	}
	return g
}
