package placement

import "slices"

// grid is a problem in the form that the methods of Solve use.
type grid struct {
	problem *Problem
	spans   [][]Span // by buffer
	pieces  int      // total number of spans of all buffers
	load    []int64  // by column, the live bytes
	bound   int64    // the maximum of load
	fixed   []int64  // by buffer, its fixed offset, or a negative number if it has none; may be nil
	full    []int32  // by column, the number of earlier columns at which the load equals the bound
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
