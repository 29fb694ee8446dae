package layout

import (
	"cmp"
	"slices"
)

// Buffers of one size, each at the place that has been free for longest, need no more places
// than are alive at once. But who follows whom may come round after very many periods only.
// With some places more, each has been free for longer when it is taken, and all may be back
// much sooner: every number of places has a cycle of its own.

// queue is buffers of one size that are born again in each period, and take the place that
// has been free for longest.
type queue struct {
	own  []int32  // in order of birth
	dead []int    // how many have died before each of them, since the beginning of the period of its birth
	over int      // how many are alive where a period ends
	most int      // how many are alive at once
	back []queued // numbers of places whose cycle is not too long, from the fewest on
}

// queued is a number of places, and after how many periods all buffers are back at them.
type queued struct{ places, cycle int }

// morePlaces is the part of the fewest places that is tried on top of them.
const morePlaces = 16

// queue returns the queue of buffers of one size, in order of birth, for cycles that are not
// too long.
func (s *steady) queue(own []int32, longest int) *queue {
	q := &queue{own: own, dead: make([]int, len(own))}
	ends := make([]int, len(own)) // in order of death within a period
	for k, i := range own {
		ends[k] = k
		q.over += int(s.Buffers[i].Upper / s.Period)
	}
	end := func(k int) int64 { return s.Buffers[own[k]].Upper % s.Period }
	slices.SortFunc(ends, func(a, b int) int { return cmp.Compare(end(a), end(b)) })
	born := 0
	for before, k := range ends {
		q.dead[k] = int(s.Buffers[own[k]].Upper/s.Period)*len(own) + before
		for born < len(own) && s.Buffers[own[born]].Lower < end(k) {
			born++
		}
		q.most = max(q.most, q.over+born-before)
	}
	q.most = max(q.most, q.over)
	for places := q.most; places <= q.most+q.most/morePlaces; places++ {
		if cycle, ok := q.cycle(places, longest); ok {
			q.back = append(q.back, queued{places, cycle})
		}
	}
	return q
}

// next returns which of the queue is born at the place of another when that has been free
// for longest, counted from the beginning of the other's period.
func (q *queue) next(k, places int) int { return q.dead[k] + places - q.over }

// chains returns who takes turns at so many places.
func (q *queue) chains(places int) (chains []chain) {
	in := make([]bool, len(q.own))
	for first := range q.own {
		if in[first] {
			continue
		}
		var c chain
		for k := first; !in[k]; {
			in[k] = true
			c.turns = append(c.turns, turn{q.own[k], c.places})
			next := q.next(k, places)
			k, c.places = next%len(q.own), c.places+next/len(q.own)
		}
		chains = append(chains, c)
	}
	return chains
}

// cycle returns after how many periods all are back at so many places, false where that is
// too long.
func (q *queue) cycle(places, longest int) (cycle int, ok bool) {
	in := make([]bool, len(q.own))
	cycle = 1
	for first := range q.own {
		periods := 0
		for k := first; !in[k]; {
			in[k] = true
			next := q.next(k, places)
			k, periods = next%len(q.own), periods+next/len(q.own)
		}
		if periods > 0 {
			if cycle = multiple(cycle, periods); cycle > longest {
				return 0, false
			}
		}
	}
	return cycle, true
}

// within returns the fewest places at which all are back after a cycle, 0 where nobody knows.
func (q *queue) within(cycle int) int {
	for _, b := range q.back {
		if cycle%b.cycle == 0 {
			return b.places
		}
	}
	return 0
}

// multiple returns the least common multiple of two numbers.
func multiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
