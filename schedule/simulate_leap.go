package schedule

import (
	"bytes"
	"math"
)

// leaps lets a simulation leap over repeats that must go like others.
//
// All times come from sums and from comparisons: what is later counts. As long as
// every comparison is won by the same side as in the period before, each time of a
// period is one of the times at its beginning plus a constant. So if two periods in a
// row took the same sides and every time has moved by as much in the second as in the
// first, it moves by that again and again, until a comparison goes another way. What
// is compared is then linear in the number of periods, and a comparison that goes the
// same way in one period and in a later one goes that way in all between. So the times
// are moved far ahead and one period is tried there: where it takes the same sides,
// the leap stands; if not, one half as long is tried.
//
// A period is some rounds after which every rank is back at the same place of its
// body. It may take many: times on a critical cycle through k ranks recur only after
// k repeats.
type leaps struct {
	s      *simulation
	stride int // microbatches of a turn

	past   []moment // of the last rounds, by round and rank
	rounds int      // seen
	rest   int      // rounds until a period is looked for again

	a, b, c snapshot // the ends of two periods in a row
	trace   []byte   // of the first of them
	slopes  slopes
}

// moment is where a rank was at the end of a round.
type moment struct {
	segment         int
	position, clock int64
}

const (
	// maxPeriod is how many rounds a period may have, and maxMoments how many moments
	// are kept to find one; with many ranks periods are shorter.
	maxPeriod  = 128
	maxMoments = 1 << 15
	// maxStride bounds the microbatches of a turn.
	maxStride = 1 << 12
	// fewRepeats are not worth a leap.
	fewRepeats = 4
)

// newLeaps returns leaps for the simulation, nil where the plan has no repeats.
func newLeaps(s *simulation) *leaps {
	l := &leaps{s: s, stride: 1}
	repeats := false
	for _, program := range s.plan.Programs {
		for _, segment := range program {
			if segment.Repeat > fewRepeats {
				repeats = true
				l.stride = commonMultiple(l.stride, segment.Stride)
			}
		}
	}
	if !repeats {
		return nil
	}
	periods := max(2, min(maxPeriod, maxMoments/(2*len(s.ranks))))
	l.past = make([]moment, (2*periods+1)*len(s.ranks))
	return l
}

// commonMultiple returns the least common multiple of two strides, or the first one
// where that is too large.
func commonMultiple(a, b int) int {
	x, y := a, max(b, -b, 1)
	for y != 0 {
		x, y = y, x%y
	}
	if m := a / x * max(b, -b, 1); m <= maxStride {
		return m
	}
	return a
}

// quota returns how many actions of a segment a rank runs in a turn: whole repeats,
// and as many microbatches as every other rank, so that none runs away.
func (l *leaps) quota(segment *Segment) int {
	if segment.Repeat <= fewRepeats {
		return turnActions
	}
	return len(segment.Body) * max(1, l.stride/max(segment.Stride, -segment.Stride, 1))
}

// look is called after each round. Where a period may have begun it leaps as far as
// that goes.
func (l *leaps) look() {
	l.keepMoment()
	if l.rest > 0 {
		l.rest--
		return
	}
	rounds := l.period()
	if rounds == 0 {
		return
	}
	tried := 2 * rounds
	if l.measure(rounds) {
		for n := l.most(); n > 0; {
			tried += rounds
			if l.leap(n, rounds) {
				tried = 0
				n = min(n, l.most())
			} else {
				n /= 2
			}
		}
	}
	l.rest, l.rounds = tried, 0
}

// keepMoment notes where the ranks are.
func (l *leaps) keepMoment() {
	ranks := len(l.s.ranks)
	now := l.past[l.rounds*ranks%len(l.past):][:ranks]
	for rank := range l.s.ranks {
		r := &l.s.ranks[rank]
		now[rank] = moment{r.segment, r.position, r.clock}
	}
	l.rounds++
}

// period returns the smallest number of rounds that looks like a period: those before
// now and as many before them moved each rank by the same number of actions, all of
// one segment and back to the same place of it, and by the same time. It returns 0
// where there is none.
func (l *leaps) period() int {
	ranks := len(l.s.ranks)
	at := func(ago int) []moment { return l.past[(l.rounds-1-ago)*ranks%len(l.past):][:ranks] }
	now := at(0)
	for n := 1; 2*n < min(l.rounds, len(l.past)/ranks); n++ {
		if before := at(n); l.like(now, before, at(2*n)) {
			return n
		}
	}
	return 0
}

func (l *leaps) like(now, before, first []moment) bool {
	for rank := range now {
		x, y, z := &now[rank], &before[rank], &first[rank]
		if x.clock-y.clock != y.clock-z.clock || x.position-y.position != y.position-z.position || x.segment != z.segment {
			return false
		}
		if program := l.s.plan.Programs[rank]; x.position != y.position && (x.position-y.position)%int64(len(program[x.segment].Body)) != 0 {
			return false
		}
	}
	return true
}

// measure runs two periods and finds out how everything moves in a period. It reports
// whether it moves evenly.
func (l *leaps) measure(rounds int) bool {
	s := l.s
	s.disorder = len(s.aside) > 0
	l.a.keep(s)
	l.trace = append(l.trace[:0], l.record(rounds)...)
	l.b.keep(s)
	second := l.record(rounds)
	l.c.keep(s)
	return s.fault == nil && !s.disorder && bytes.Equal(l.trace, second) && l.slopes.find(&l.a, &l.b, &l.c)
}

// record runs a period and returns which sides its comparisons took.
func (l *leaps) record(rounds int) []byte {
	s := l.s
	s.tracing, s.trace = true, s.trace[:0]
	for range rounds {
		s.round()
	}
	s.tracing = false
	return s.trace
}

// leap moves everything on by n periods and runs the next one, which makes c and b
// its end and beginning. Where that one goes another way, leap undoes all that and
// reports false.
func (l *leaps) leap(n int64, rounds int) bool {
	s := l.s
	l.slopes.move(s, n)
	l.a.keep(s)
	same := bytes.Equal(l.trace, l.record(rounds))
	if !same || s.fault != nil || s.disorder {
		l.c.resume(s)
		return false
	}
	// What ranks waited for messages on the wire changes evenly from period to period.
	for rank := range s.ranks {
		r := &s.ranks[rank]
		last := l.c.ranks[rank].communication - l.b.ranks[rank].communication
		next := r.communication - l.a.ranks[rank].communication
		leapt := n * (last + next) / 2
		r.communication += leapt
		if r.final > l.a.ranks[rank].final {
			r.counted += leapt
		}
	}
	l.a, l.b = l.b, l.a
	l.c.keep(s)
	return true
}

// most returns the most periods that can be leapt over: one more is run after them,
// and no segment ends.
func (l *leaps) most() int64 {
	n := int64(math.MaxInt64)
	for rank := range l.s.ranks {
		if step := l.slopes.ranks[rank].repeat; step > 0 {
			r := &l.s.ranks[rank]
			left := l.s.plan.Programs[rank][r.segment].Repeat - 1 - r.repeat
			n = min(n, int64(left/step)-1)
		}
	}
	for i := range l.slopes.boxes {
		if step := l.slopes.boxes[i].unfolds; step > 0 {
			p := &l.s.boxes[i].piles[0]
			n = min(n, (p.total-p.done)/step-2)
		}
	}
	if n == math.MaxInt64 {
		return 0
	}
	return min(n, maxTotal/2/max(l.slopes.steepest, 1))
}
