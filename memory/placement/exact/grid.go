package exact

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// grid is a problem whose times are columns: the largest sets of buffers that are alive
// together, in order of time. Two buffers are alive together where they share a column.
type grid struct {
	buffers []placement.Buffer
	spans   [][]span // by buffer, ascending
	load    []int64  // by column, the bytes alive
	bound   int64    // the most of them
}

// span is a range of columns, half open.
type span struct{ lower, upper int32 }

// newGrid returns the grid of a valid problem.
func newGrid(p *placement.Problem) *grid {
	type change struct {
		time   int64
		buffer int32
		birth  bool
	}
	g := &grid{buffers: p.Buffers, spans: make([][]span, len(p.Buffers))}
	var changes []change
	for i, b := range p.Buffers {
		changes = append(changes, change{b.Lower, int32(i), true}, change{b.Upper, int32(i), false})
		for _, gap := range b.Gaps {
			changes = append(changes, change{gap.Lower, int32(i), false}, change{gap.Upper, int32(i), true})
		}
	}
	slices.SortFunc(changes, func(x, y change) int { // what ends comes first
		order := cmp.Or(cmp.Compare(x.time, y.time), cmp.Compare(x.buffer, y.buffer))
		if x.time == y.time && x.birth != y.birth {
			order = -1
			if x.birth {
				order = 1
			}
		}
		return order
	})
	growing, live := false, int64(0) // growing: nothing has ended since the last birth
	for _, c := range changes {
		spans := &g.spans[c.buffer]
		if !c.birth {
			live -= g.buffers[c.buffer].Size
			growing = false
			(*spans)[len(*spans)-1].upper = int32(len(g.load))
			continue
		}
		live += g.buffers[c.buffer].Size
		if !growing {
			growing = true
			g.load = append(g.load, 0)
		}
		last := len(g.load) - 1
		g.load[last] = live
		g.bound = max(g.bound, live)
		*spans = append(*spans, span{lower: int32(last)})
	}
	return g
}

// alignUp returns the first multiple of align from offset on. Align is a power of two,
// or 0 for 1.
func alignUp(offset, align int64) int64 {
	if align > 1 {
		offset = (offset + align - 1) &^ (align - 1)
	}
	return offset
}
