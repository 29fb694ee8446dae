package choose

import (
	"cmp"
	"slices"
)

// rhythm is an order that repeats with every microbatch: when the tasks of the first
// one begin, and after which period those of the next one. These are the building
// blocks of pipelines with controllable memory (V-Min, V-Half, ZB-V): a rank holds as
// much as the way of a microbatch is long.
type rhythm struct {
	at     []int64 // by task
	period int64
}

// measure is what a rhythm is made to. Its times need not be those of the step: what
// counts of a rhythm is its order.
type measure struct {
	time, lag []int64 // by task
	period    int64
	// rest is for how long a microbatch rests before each block, on its way forward and
	// back, by leg: the first blocks of all ranks, the second ones, and so on.
	rest [2][]int64
	late bool // W are placed behind all others, or else each behind its backward
}

// rhythm places the tasks of a microbatch one after the other along its way, each as
// early as there is a place in the period of its rank. It reports false where there is
// none.
func (s *shop) rhythm(m *measure) (rhythm, bool) {
	r := rhythm{make([]int64, len(s.time)), m.period}
	taken := make([][]interval, s.ranks)
	placed := true
	var end int64 // of the task before
	place := func(t task, from int64) {
		rank := s.blocks[t.block()].rank
		at, fits := fit(taken[rank], m.period, from, m.time[t])
		placed = placed && fits
		r.at[t], end = at, at+m.time[t]
		taken[rank] = append(taken[rank], interval{at % m.period, at%m.period + m.time[t]})
	}
	for b := 0; b < len(s.blocks) && placed; b++ {
		t := taskOf(b, forward)
		if b > 0 {
			end += m.lag[t-parts] + m.rest[0][b/s.ranks]
		}
		place(t, end)
	}
	var weights []task
	for b := len(s.blocks) - 1; b >= 0 && placed; b-- {
		t := taskOf(b, backward)
		if b+1 < len(s.blocks) {
			end += m.lag[t+parts]
		}
		place(t, end+m.rest[1][b/s.ranks])
		if own := end; s.split && !m.late {
			place(t+1, own)
			end = own
		}
		weights = append(weights, t+1)
	}
	if s.split && m.late {
		for _, w := range weights {
			place(w, r.at[w-1]+m.time[w-1])
		}
	}
	return r, placed
}

// interval is a stretch of a period. It may go on beyond the end, into the next one.
type interval struct{ from, to int64 }

// fit returns the earliest moment from some moment on at which so much time is free in
// a period of which some is taken.
func fit(taken []interval, period, from, time int64) (at int64, fits bool) {
	for at = from; at < from+period; {
		var clash int64 // until the end of what is in the way
		for _, other := range taken {
			for turn := -period; turn <= period; turn += period {
				if begins, ends := other.from+turn-at%period, other.to+turn-at%period; begins < time && ends > 0 {
					clash = max(clash, ends)
				}
			}
		}
		if clash == 0 {
			return at, time <= period
		}
		at += clash
	}
	return at, false
}

// unroll returns the order of a rhythm.
func (s *shop) unroll(r rhythm) order {
	o := make(order, s.ranks)
	for rank, on := range s.on {
		var turn []task
		last := 0
		for _, b := range on {
			for part := range s.kinds() {
				t := taskOf(b, part)
				turn = append(turn, t)
				last = max(last, int(r.at[t]/r.period))
			}
		}
		slices.SortFunc(turn, func(a, b task) int { return cmp.Compare(r.at[a]%r.period, r.at[b]%r.period) })
		o[rank] = make([]task, 0, len(turn)*s.microbatches)
		for n := range last + s.microbatches {
			for _, t := range turn {
				if mb := n - int(r.at[t]/r.period); mb >= 0 && mb < s.microbatches {
					o[rank] = append(o[rank], t)
				}
			}
		}
	}
	return o
}
