package choose

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// search finds orders for one partition of the model: the orders of named schedules and, for each
// memory limit, orders from policies. It improves the best of them. Random choices use a fixed seed, so the result
// depends only on the request.
type search struct {
	*jobShop
	evaluator  *evaluator
	dispatcher *dispatcher
	clock      Clock
	extra      int   // number of microbatches of the step beyond those of an order
	bound      int64 // lower bound on the step's time
	random     *rand.Rand
	named      []solution // the orders of the named schedules
}

// solution is an order with its figures for the whole step.
type solution struct {
	order order
	cut   cut
	size  int64 // bytes on the fullest rank
	timing
}

// The limits of a search. Short orders can be tried many times, long ones only a few times.
const (
	// Under one limit, the policies place policyWork tasks in total, but make at least minPolicies and at
	// most maxPolicies orders.
	policyWork, minPolicies, maxPolicies = 7 << 15, 8, 112
	// goodPolicies policies are kept for mutation. The search gives up on policies after a quarter of
	// the work if their best order is slower than a named schedule by more than 1/slowdownDivisor.
	goodPolicies, slowdownDivisor = 4, 20
	// betterOrders orders from named schedules and as many from policies are improved, at most
	// maxImprovements times; only one of each if they contain more than longOrder tasks.
	betterOrders, longOrder, maxImprovements = 2, 1 << 13, 3
)

// orderMicrobatches returns the number of microbatches in the orders to search for: all of the step's, or
// enough for warm-up, steady state and drain, chosen so that every stride divides the rest.
func orderMicrobatches(r *Request) int {
	enough := max(64, 4*r.Ranks)
	if r.Microbatches <= 2*enough {
		return r.Microbatches
	}
	return enough + (r.Microbatches-enough)%maxStride
}

func newSearch(r *Request, blocks []block, split bool) (*search, error) {
	s, err := newJobShop(r, blocks, orderMicrobatches(r), split)
	if err != nil {
		return nil, err
	}
	q := &search{
		jobShop: s, evaluator: newEvaluator(s), dispatcher: newDispatcher(s), clock: r.Clock, extra: r.Microbatches - s.microbatches,
		bound: s.lowerBound(r.Microbatches, r.Clock), random: rand.New(rand.NewPCG(uint64(r.Ranks), uint64(len(blocks)))),
	}
	q.addNamed()
	return q, nil
}

// solve returns good orders that stay within a limit of bytes, the best first, and the policies behind
// some of them. It first tries the known policies, which are good under another limit. Effort multiplies
// the number of policies that it tries.
func (q *search) solve(limit int64, known []policy, effort int) (solutions []solution, good []policy) {
	var starts []solution
	for _, s := range q.named {
		if s.size <= limit {
			starts = append(starts, s)
		}
	}
	for _, o := range roundsOrders(q.jobShop, limit) {
		if s, ok := q.evaluate(o); ok {
			starts, solutions = append(starts, s), append(solutions, s)
		}
	}
	count := betterOrders
	if q.tasks() > longOrder {
		count = 1
	}
	slices.SortStableFunc(starts, q.compare)
	starts = starts[:min(len(starts), count)]
	slow := int64(infinity)
	if len(starts) > 0 {
		slow = q.time(starts[0]) / slowdownDivisor * (slowdownDivisor + 1)
	}
	for i, t := range q.tryPolicies(limit, known, effort, slow) {
		good, solutions = append(good, t.policy), append(solutions, t.solution)
		if i < count {
			starts = append(starts, t.solution)
		}
	}
	for _, s := range starts {
		solutions = append(solutions, q.improve(s, limit))
	}
	slices.SortStableFunc(solutions, q.compare)
	return solutions, good
}

// trial is a policy and the solution that it gave.
type trial struct {
	policy policy
	solution
}

// tryPolicies tries the known policies, then random ones, then mutations of the best, and returns the
// best trials in order. It returns early if the best one meets the lower bound, or if all of the first
// trials are slower than slow.
func (q *search) tryPolicies(limit int64, known []policy, effort int, slow int64) (best []trial) {
	n := max(minPolicies, min(effort*maxPolicies, effort*policyWork/q.tasks()))
	for i := range len(known) + n {
		var p policy
		switch {
		case i == len(known)+n/4 && (len(best) == 0 || q.time(best[0].solution) > slow):
			return best
		case i < len(known):
			p = known[i]
		case len(best) == 0 || i < len(known)+n/2:
			p = randomPolicy(q.random)
		default:
			p = best[q.random.IntN(len(best))].policy.mutate(q.random)
		}
		o, ok := q.dispatcher.run(p, limit)
		if !ok {
			continue
		}
		if s, ok := q.evaluate(o); ok && s.size <= limit {
			best = append(best, trial{p, s})
			slices.SortStableFunc(best, func(a, b trial) int { return q.compare(a.solution, b.solution) })
			best = best[:min(len(best), goodPolicies)]
		}
		if len(best) > 0 && q.time(best[0].solution) <= q.bound {
			return best
		}
	}
	return best
}

// improve justifies an order until that no longer improves it, but at most maxImprovements times.
func (q *search) improve(s solution, limit int64) solution {
	for range maxImprovements {
		if _, ok := q.evaluator.run(s.order); !ok {
			return s
		}
		better, ok := q.lengthen(q.evaluator.justify(s.order, limit))
		if !ok || q.compare(better, s) >= 0 {
			return s
		}
		s = better
	}
	return s
}

// addNamed adds the orders that the named schedules with the same placement have for a model with one
// stage per block.
func (q *search) addNamed() {
	r := Request{Ranks: q.ranks, Stages: len(q.blocks), Microbatches: q.microbatches, Costs: &simulate.Costs{}}
	for _, s := range schedule.Schedules() {
		if s.Split != q.split || !s.AscendingBackward {
			continue
		}
		for _, c := range variants(&s, &r) {
			samePlacement := slices.EqualFunc(q.blocks, c.Params.Placement.Rank, func(b block, rank int) bool { return b.rank == rank })
			if c.Refused != nil || !samePlacement {
				continue
			}
			if plan, err := s.Rule(c.Params); err == nil {
				if s, ok := q.evaluate(q.orderOf(plan)); ok {
					q.named = append(q.named, s)
				}
			}
		}
	}
}

// orderOf returns the order of a plan that has one stage for each block.
func (q *search) orderOf(plan *schedule.Plan) order {
	o := make(order, q.ranks)
	for rank := range o {
		for a := range plan.All(rank) {
			part := backward
			switch a.Kind() {
			case schedule.F:
				part = forward
			case schedule.W:
				part = weight
			}
			o[rank] = append(o[rank], taskOf(a.Stage(), part))
		}
	}
	return o
}

// evaluate runs an order and returns it with its figures. It returns false if the order ends in a
// deadlock or cannot be lengthened to the whole step.
func (q *search) evaluate(o order) (solution, bool) {
	t, ok := q.evaluator.run(o)
	if !ok {
		return solution{}, false
	}
	return q.lengthen(o, t)
}

// lengthen cuts the order of the latest run and returns its figures for the whole step. It returns
// false if no cut is valid.
func (q *search) lengthen(o order, t timing) (solution, bool) {
	c, ok := q.evaluator.cut(o, q.extra)
	repeated := int64(c.repeats) * c.elapsed
	return solution{o, c, q.size(o), timing{t.makespan + repeated, t.span + repeated}}, ok
}

// compare orders solutions from the best to the worst.
func (q *search) compare(a, b solution) int {
	return cmp.Or(cmp.Compare(q.time(a), q.time(b)), cmp.Compare(a.size, b.size), cmp.Compare(a.makespan+a.span, b.makespan+b.span))
}

// time returns the time of a solution by the clock of the request.
func (q *search) time(s solution) int64 {
	if q.clock == Span {
		return s.span
	}
	return s.makespan
}
