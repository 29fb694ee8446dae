package placement

import (
	"cmp"
	"slices"
)

// recipe is a greedy way to lay out a problem: an order of the buffers, and the choice of
// holes.
type recipe struct {
	name string
	full before // if set, the order of the buffers that are live at the peak; they come first
	rest before // the order of the others
	fit  fit
}

// before compares two buffers of a grid: it is negative if x is placed before y.
type before func(g *grid, x, y int32) int

// recipes are raced in this order. None is always the best. Placing larger buffers first is a safe
// choice: small buffers fill the space that large ones leave. Birth order with the best fit is what an
// allocator does that does not know the future; it is optimal for stacks and good if a pattern repeats.
// In a training step, the bound is reached at one moment, the turn from forward to backward. The buffers
// that are live at that moment must be packed without a hole, so they are placed first; all others have
// more space.
var recipes = []recipe{
	{"larger first, first fit", nil, larger, firstFit},
	{"the fullest time first, there larger first; then longer first; first fit", larger, longer, firstFit},
	{"the fullest time first, there longer first; then larger first; first fit", longer, larger, firstFit},
	{"the fullest time first, there the last to die first; then larger first; first fit", later, larger, firstFit},
	{"the fullest time first, there in order of birth; then larger first; first fit", earlier, larger, firstFit},
	{"in order of birth, best fit", nil, earlier, bestFit},
	{"back from the last death, best fit", nil, later, bestFit},
	{"longer first, first fit", nil, longer, firstFit},
	{"larger area first, first fit", nil, wider, firstFit},
	{"larger first, best fit", nil, larger, bestFit},
	{"the fullest time first, there longer first; then larger area first; best fit", longer, wider, bestFit},
	{"in order of birth, first fit", nil, earlier, firstFit},
	{"back from the last death, first fit", nil, later, firstFit},
	{"coarser alignment first, then larger; first fit", nil, coarser, firstFit},
}

func larger(g *grid, x, y int32) int {
	return cmp.Or(-cmp.Compare(g.size(x), g.size(y)), cmp.Compare(g.lower(x), g.lower(y)))
}

// coarser places buffers with larger alignments first. Then there is no padding below buffers whose sizes
// are multiples of their alignments.
func coarser(g *grid, x, y int32) int {
	return cmp.Or(-cmp.Compare(g.problem.Buffers[x].Align, g.problem.Buffers[y].Align), larger(g, x, y))
}

func longer(g *grid, x, y int32) int {
	return cmp.Or(-cmp.Compare(g.duration(x), g.duration(y)), larger(g, x, y))
}

func wider(g *grid, x, y int32) int {
	return cmp.Or(-cmp.Compare(g.area(x), g.area(y)), larger(g, x, y))
}

func earlier(g *grid, x, y int32) int {
	return cmp.Or(cmp.Compare(g.lower(x), g.lower(y)), -cmp.Compare(g.size(x), g.size(y)))
}

func later(g *grid, x, y int32) int {
	return cmp.Or(-cmp.Compare(g.upper(x), g.upper(y)), -cmp.Compare(g.lower(x), g.lower(y)), -cmp.Compare(g.size(x), g.size(y)))
}

// order returns all buffers in a recipe's order. Ties are in order of the buffers' numbers.
func (g *grid) order(r recipe) []int32 {
	order := make([]int32, len(g.problem.Buffers))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(x, y int32) int {
		if r.full == nil {
			return r.rest(g, x, y)
		}
		switch a, b := g.atFull(x), g.atFull(y); {
		case a && b:
			return r.full(g, x, y)
		case a:
			return -1
		case b:
			return 1
		}
		return r.rest(g, x, y)
	})
	return order
}

// atFull reports whether a buffer is live at a time when the bound is reached.
func (g *grid) atFull(i int32) bool {
	for _, s := range g.spans[i] {
		if g.full[s.Lower] < g.full[s.Upper] {
			return true
		}
	}
	return false
}

func (g *grid) size(i int32) int64  { return g.problem.Buffers[i].Size }
func (g *grid) lower(i int32) int64 { return g.problem.Buffers[i].Lower }
func (g *grid) upper(i int32) int64 { return g.problem.Buffers[i].Upper }

// duration returns the time from a buffer's birth to its death, as an unsigned number, because a signed
// one could overflow.
func (g *grid) duration(i int32) uint64 { return uint64(g.upper(i)) - uint64(g.lower(i)) }

// area returns bytes times duration, rounded.
func (g *grid) area(i int32) float64 { return float64(g.size(i)) * float64(g.duration(i)) }
