package choose

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// search finds orders for one way to place the model: those of the schedules by name and, under each
// limit of memory, those of policies. It improves the best of them. The result
// depends on the request alone: random choices have a fixed seed.
type search struct {
	*clock
	dispatcher *dispatcher
	by         Clock
	more       int   // microbatches of the step beyond those of an order
	bound      int64 // the step takes no less time
	random     *rand.Rand
	pool       []found // the orders of the schedules by name
}

// found is an order that a search has found.
type found struct {
	order order
	cut   cut
	size  int64 // bytes on the fullest rank
	timing
}

// The limits of a search. An order of a few tasks is tried many times, a long one a few.
const (
	policyWork, fewPolicies, manyPolicies = 1 << 18, 8, 128 // tasks in all and orders, under one limit
	// goodPolicies are kept to be varied. They are given up after a quarter of the work
	// if the best order is slower than another one by more than a part of farBehind.
	goodPolicies, farBehind = 4, 20
	// betterOrders of each kind are improved, one of each if it has more tasks than longOrder, as
	// long as that helps, but not more often than polishes.
	betterOrders, longOrder, polishes = 2, 1 << 13, 3
)

// tries returns how often to try an order.
func (s *shop) tries(work, few, many int) int { return max(few, min(many, work/s.length())) }

// short returns how many microbatches are enough to find an order for the step: all of
// them, or else as many as show how it begins, repeats and ends, and leave a number
// that every stride divides.
func short(r *Request) int {
	enough := max(64, 4*r.Ranks)
	if r.Microbatches <= 2*enough {
		return r.Microbatches
	}
	return enough + (r.Microbatches-enough)%maxStride
}

func newSearch(r *Request, blocks []block, split bool) (*search, error) {
	s, err := newShop(r, blocks, short(r), split)
	if err != nil {
		return nil, err
	}
	q := &search{
		clock: newClock(s), dispatcher: newDispatcher(s), by: r.Clock, more: r.Microbatches - s.microbatches,
		bound: s.least(r.Microbatches, r.Clock), random: rand.New(rand.NewPCG(uint64(r.Ranks), uint64(len(blocks)))),
	}
	q.schedules()
	return q, nil
}

// under returns good orders that keep to a limit, the best first, and the policies that
// made some of them. It is given policies that are good under another limit, and how
// many times as much as usual it may try.
func (q *search) under(limit int64, known []policy, effort int) (orders []found, good []policy) {
	for _, f := range q.pool {
		if f.size <= limit {
			orders = append(orders, f)
		}
	}
	few := betterOrders
	if q.length() > longOrder {
		few = 1
	}
	slices.SortStableFunc(orders, q.compare)
	orders = orders[:min(len(orders), few)]
	slow := int64(never)
	if len(orders) > 0 {
		slow = q.clockOf(orders[0]) / farBehind * (farBehind + 1)
	}
	for i, t := range q.policies(limit, known, effort, slow) {
		good = append(good, t.policy)
		if i < few {
			orders = append(orders, t.found)
		}
	}
	for i := range orders {
		orders[i] = q.polish(orders[i], limit)
	}
	slices.SortStableFunc(orders, q.compare)
	return orders, good
}

// trial is a policy and the order that it has made.
type trial struct {
	policy policy
	found
}

// policies tries those that are known, then some at random, then the best of them with
// one thing changed. It gives up if the first are all slower than slow.
func (q *search) policies(limit int64, known []policy, effort int, slow int64) (best []trial) {
	n := q.tries(effort*policyWork, fewPolicies, effort*manyPolicies)
	for i := range len(known) + n {
		var p policy
		switch {
		case i == len(known)+n/4 && (len(best) == 0 || q.clockOf(best[0].found) > slow):
			return best
		case i < len(known):
			p = known[i]
		case len(best) == 0 || i < len(known)+n/2:
			p = anyPolicy(q.random)
		default:
			p = best[q.random.IntN(len(best))].policy.varied(q.random)
		}
		o, runs := q.dispatcher.run(p, limit)
		if !runs {
			continue
		}
		if f, valid := q.appraise(o); valid && f.size <= limit {
			best = append(best, trial{p, f})
			slices.SortStableFunc(best, func(a, b trial) int { return q.compare(a.found, b.found) })
			best = best[:min(len(best), goodPolicies)]
		}
		if len(best) > 0 && q.clockOf(best[0].found) <= q.bound {
			return best
		}
	}
	return best
}

// polish justifies an order as long as that helps.
func (q *search) polish(f found, limit int64) found {
	for range polishes {
		if _, runs := q.run(f.order); !runs {
			return f
		}
		better, valid := q.judge(q.justify(f.order, limit))
		if !valid || q.compare(better, f) >= 0 {
			return f
		}
		f = better
	}
	return f
}

// schedules adds the orders of the schedules by name, for a model of as many stages as
// there are blocks.
func (q *search) schedules() {
	like := Request{Ranks: q.ranks, Stages: len(q.blocks), Microbatches: q.microbatches, Costs: &simulate.Costs{}}
	for _, s := range schedule.Schedules() {
		if s.Split != q.split || !s.Ascends {
			continue
		}
		for _, c := range variants(&s, &like) {
			placed := slices.EqualFunc(q.blocks, c.Params.Placement.Rank, func(b block, rank int) bool { return b.rank == rank })
			if c.Refused != nil || !placed {
				continue
			}
			if plan, err := s.Rule(c.Params); err == nil {
				if f, valid := q.appraise(q.tasks(plan)); valid {
					q.pool = append(q.pool, f)
				}
			}
		}
	}
}

// tasks returns the order of a plan that has a stage for each block.
func (q *search) tasks(plan *schedule.Plan) order {
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

// appraise runs an order and returns its figures.
func (q *search) appraise(o order) (found, bool) {
	t, runs := q.run(o)
	if !runs {
		return found{}, false
	}
	return q.judge(o, t)
}

// judge returns the figures of an order that has just been run, for the whole step. It reports false
// if it is not known how the order continues.
func (q *search) judge(o order, t timing) (found, bool) {
	c, cuts := q.cut(o, q.more)
	longer := int64(c.times) * c.elapsed
	return found{o, c, q.size(o), timing{t.makespan + longer, t.span + longer}}, cuts
}

// compare puts the better order first.
func (q *search) compare(a, b found) int {
	return cmp.Or(cmp.Compare(q.clockOf(a), q.clockOf(b)), cmp.Compare(a.size, b.size), cmp.Compare(a.makespan+a.span, b.makespan+b.span))
}

// clockOf returns the time that counts.
func (q *search) clockOf(f found) int64 {
	if q.by == Span {
		return f.span
	}
	return f.makespan
}
