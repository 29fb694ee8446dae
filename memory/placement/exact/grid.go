package exact

import (
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// grid is a problem divided into columns.
type grid struct {
	buffers []placement.Buffer
	spans   [][]placement.Span // by buffer, ascending
	load    []int64            // by column, the live bytes
	bound   int64              // the maximum of load
}

// newGrid returns the grid of a valid problem.
func newGrid(p *placement.Problem) *grid {
	g := &grid{buffers: p.Buffers}
	if g.spans, g.load = p.Columns(); len(g.load) > 0 {
		g.bound = slices.Max(g.load)
	}
	return g
}

// alignUp returns the first multiple of align at or above offset. Align is a power of two, or 0
// for 1.
func alignUp(offset, align int64) int64 {
	if align > 1 {
		offset = (offset + align - 1) &^ (align - 1)
	}
	return offset
}
