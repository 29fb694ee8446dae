package choose

import "math/rand/v2"

// policy decides the next task of a free rank. It is the automatic heuristic of the zero-bubble paper
// as list scheduling: a gradient that has arrived goes first, then a forward if memory allows it,
// and W fills the gaps. It considers inputs whose arrival is known.
type policy struct {
	// fill is how much of a W must fit into a gap: 1 is all of it, 0 nothing.
	fill float64
	// hold is how much of a forward must fit in before the next gradient.
	hold float64
	// Depth and pace bound the microbatches between their forward in a block and their
	// backward: as many as enter while one is on its way through the blocks behind, and
	// depth more. Pace is how fast they enter: from 0, as fast as the rank can run their
	// forwards, to 1, as fast as it can do all their work.
	depth, pace float64
	// lead is up to how many of those a forward goes before a gradient.
	lead int
	// high prefers the gradient of the highest block, or else that of the lowest.
	high bool
}

// The values that policies are made from. Those that are good more often are there more often.
var (
	fills  = []float64{0, 0.05, 0.1, 0.25, 0.5, 0.75, 1}
	holds  = []float64{0, 0, 0.1, 0.2, 0.3, 0.5, 1}
	depths = []float64{-1, -0.5, 0, 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 1000}
	paces  = []float64{0, 0, 0.1, 0.25, 0.5, 0.75, 1}
	leads  = []int{0, 0, 0, 0, 1, 2, 3, 4}
)

// anyPolicy returns one at random.
func anyPolicy(r *rand.Rand) policy {
	return policy{
		fill: oneOf(r, fills), hold: oneOf(r, holds), depth: oneOf(r, depths), pace: oneOf(r, paces), lead: oneOf(r, leads),
		high: r.IntN(2) == 0,
	}
}

// varied returns the policy with one thing changed.
func (p policy) varied(r *rand.Rand) policy {
	switch r.IntN(6) {
	case 0:
		p.fill = oneOf(r, fills)
	case 1:
		p.hold = oneOf(r, holds)
	case 2:
		p.depth = oneOf(r, depths)
	case 3:
		p.pace = oneOf(r, paces)
	case 4:
		p.lead = oneOf(r, leads)
	default:
		p.high = !p.high
	}
	return p
}

func oneOf[T any](r *rand.Rand, values []T) T { return values[r.IntN(len(values))] }
