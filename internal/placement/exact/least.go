package exact

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// minimise searches for the minimal height below a given one. It returns the best layout that it found,
// or nil; a proven lower bound on the height; and the number of nodes that it spent, including those to
// make the field, which is at most budget.
//
// It works in rounds. A round tries the least height that is not ruled out, and then bisects between the
// highest capacity at which it gave up and the lowest layout. Each capacity gets twice as many nodes as
// in the previous round.
func (f *field) minimise(ctx context.Context, height, budget int64, seed uint64) (offsets []int64, least, nodes int64) {
	least, nodes = slices.Max(f.load), f.nodes
	unit := unitOf(f.problem)
	for share := int64(firstShare); least < height && nodes < budget && ctx.Err() == nil; share *= 2 {
		fine := max(unit, (height-least)/32) // resolution of a round
		for tried := least - unit; height-tried > fine && nodes < budget && ctx.Err() == nil; {
			capacity := least
			if tried >= least {
				capacity = tried + max(unit, (height-tried)/2/unit*unit)
			}
			found, o, n := f.search(ctx, capacity, min(share, budget-nodes), seed)
			nodes += max(n, 1)
			switch o {
			case solved:
				offsets, height = found, heightOf(f.problem, found)
			case impossible:
				tried, least = capacity, capacity+unit
			case gaveUp:
				tried = capacity
			}
		}
	}
	return offsets, least, nodes
}

// firstShare is the number of nodes for each capacity in the first round.
const firstShare = 1 << 16

// unitOf returns the greatest common divisor of all sizes and alignments. The height of any layout in
// which no buffer can be pushed down is a multiple of it.
func unitOf(p *placement.Problem) (unit int64) {
	for i := range p.Buffers {
		b := &p.Buffers[i]
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

// heightOf returns the highest end of a buffer.
func heightOf(p *placement.Problem, offsets []int64) (height int64) {
	for i, at := range offsets {
		height = max(height, at+p.Buffers[i].Size)
	}
	return height
}
