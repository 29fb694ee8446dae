package exact

import (
	"context"

	"github.com/weir-ml/weir/memory/placement"
)

// Outcomes of Search.
const (
	GaveUp     = gaveUp
	Solved     = solved
	Impossible = impossible
)

// Search searches for a layout within a capacity.
func Search(ctx context.Context, p *placement.Problem, capacity, budget int64, seed uint64) ([]int64, outcome, int64) {
	f := newField(p, budget)
	if f == nil {
		return nil, gaveUp, 0
	}
	offsets, o, nodes := f.search(ctx, capacity, budget-f.nodes, seed)
	return offsets, o, f.nodes + nodes
}

// Minimise searches for the minimal height below a given one.
func Minimise(ctx context.Context, p *placement.Problem, height, budget int64, seed uint64) ([]int64, int64, int64) {
	return newField(p, budget).minimise(ctx, height, budget, seed)
}
