package choose

import "math/rand/v2"

// policy selects the next task of an idle rank. It is the zero-bubble paper's automatic heuristic in the
// form of list scheduling: it prefers a gradient that has arrived, then a forward if the memory allows
// it, and fills gaps with W. It anticipates inputs whose arrival time is known.
type policy struct {
	// weightFit is the fraction of a W that must fit into a gap, from 0 to 1 (the whole W).
	weightFit float64
	// forwardFit is the fraction of a forward that must fit before the next gradient.
	forwardFit float64
	// depth and pace bound the number of microbatches in flight in a block, between their forward and
	// their backward there: as many as enter while one makes a round trip through the later blocks, plus
	// depth. Pace sets the rate at which they are assumed to enter, from 0 (as fast as the rank can run
	// their forwards) to 1 (as fast as it can do all their work).
	depth, pace float64
	// lead is the number of microbatches in flight below which a forward precedes a gradient.
	lead int
	// highestFirst prefers the gradient of the highest block to that of the lowest.
	highestFirst bool
}

// The values from which policies are drawn. Values that tend to be good are listed more often.
var (
	weightFits  = []float64{0, 0.05, 0.1, 0.25, 0.5, 0.75, 1}
	forwardFits = []float64{0, 0, 0.1, 0.2, 0.3, 0.5, 1}
	depths      = []float64{-1, -0.5, 0, 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 1000}
	paces       = []float64{0, 0, 0.1, 0.25, 0.5, 0.75, 1}
	leads       = []int{0, 0, 0, 0, 1, 2, 3, 4}
)

// randomPolicy returns a policy with random values.
func randomPolicy(r *rand.Rand) policy {
	return policy{
		weightFit: pick(r, weightFits), forwardFit: pick(r, forwardFits), depth: pick(r, depths), pace: pick(r, paces), lead: pick(r, leads),
		highestFirst: r.IntN(2) == 0,
	}
}

// mutate returns the policy with one value drawn again, or with highestFirst inverted.
func (p policy) mutate(r *rand.Rand) policy {
	switch r.IntN(6) {
	case 0:
		p.weightFit = pick(r, weightFits)
	case 1:
		p.forwardFit = pick(r, forwardFits)
	case 2:
		p.depth = pick(r, depths)
	case 3:
		p.pace = pick(r, paces)
	case 4:
		p.lead = pick(r, leads)
	default:
		p.highestFirst = !p.highestFirst
	}
	return p
}

func pick[T any](r *rand.Rand, values []T) T { return values[r.IntN(len(values))] }

// decide returns the task that the rank starts now, or -1 and the time of its next decision.
func (p *policy) decide(c *choices, duration []int64, now int64) (task, int64) {
	// fits reports whether the given fraction of a task ends before a time.
	fits := func(fraction float64, t task, deadline int64) bool {
		return deadline == infinity || float64(deadline-now) >= fraction*float64(duration[t])
	}
	next := min(c.nextForward, c.nextBackward)
	if c.forward >= 0 {
		next = c.nextBackward
		if c.inFlight < p.lead || c.backward < 0 && fits(p.forwardFit, c.forward, next) {
			return c.forward, 0
		}
	}
	switch {
	case c.backward >= 0:
		return c.backward, 0
	case c.weight >= 0 && (c.blocked || fits(p.weightFit, c.weight, next)):
		return c.weight, 0
	}
	return -1, next
}
