package simulate

import (
	"bytes"
	"math/bits"
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
	stride int // microbatches of a round

	beats  []uint64 // of the last rounds: what each was like
	rounds int      // since the last leap
	window int      // how many rounds must repeat before they are taken for a period
	rest   int      // rounds until a period is looked for again

	a, b, c snapshot // the ends of two periods in a row
	trace   []byte   // of the first of them
	slopes  slopes
}

const (
	// maxPeriod is how many rounds a period may have, a power of two.
	maxPeriod = 512
	// maxStride bounds the microbatches of a round, and maxQuota the actions of several
	// repeats in it.
	maxStride = 1 << 12
	maxQuota  = 1 << 16
	// maxKept bounds the parcels in a snapshot, maxTrace the comparisons in a trace.
	maxKept  = 1 << 16
	maxTrace = 1 << 24
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
	l.beats = make([]uint64, 2*maxPeriod)
	return l
}

// commonMultiple returns the least common multiple of two strides, or the first one
// where that is too large.
func commonMultiple(a, b int) int {
	b = max(b, -b, 1)
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	if b > maxStride/(a/x) {
		return a
	}
	return a / x * b
}

// quota returns how many actions a rank may run in a round: whole repeats, and as
// many microbatches as every other rank, so that none runs away.
func (l *leaps) quota(rank int) int {
	at, program := l.s.ranks[rank].segment, l.s.plan.Programs[rank]
	if at == len(program) {
		return 0
	}
	segment := &program[at]
	if segment.Repeat <= fewRepeats {
		return turnActions
	}
	repeats := max(1, l.stride/max(segment.Stride, -segment.Stride, 1))
	return len(segment.Body) * min(repeats, 1+maxQuota/len(segment.Body))
}

// look is called after each round. Where a period may have begun it leaps as far as
// that goes.
func (l *leaps) look() {
	l.beat()
	if l.rest > 0 {
		l.rest--
		return
	}
	rounds := l.period()
	if rounds == 0 || l.s.parcels() > maxKept {
		return
	}
	leapt, tried := false, 0
	if l.measure(rounds) {
		for n := l.slopes.most(l.s); n > 0; {
			if l.leap(n, rounds) {
				leapt = true
				n = min(n, l.slopes.most(l.s))
			} else {
				tried += rounds
				n /= 2
			}
		}
	}
	l.rest = tried
	if leapt {
		l.rounds, l.window = 0, 0
	} else {
		l.window = min(2*l.window+1, maxPeriod)
	}
}

// beat notes what the round was like: how far each rank came in time, and to which
// place of its body.
func (l *leaps) beat() {
	const prime = 0x9e3779b97f4a7c15
	hash := uint64(0)
	for rank := range l.s.ranks {
		r := &l.s.ranks[rank]
		for _, v := range [...]uint64{uint64(r.clock - r.before), uint64(r.index), uint64(r.segment)} {
			hash = (bits.RotateLeft64(hash, 23) ^ v) * prime
		}
		r.before = r.clock
	}
	l.beats[l.rounds%len(l.beats)] = hash
	l.rounds++
}

// period returns the smallest number of rounds that looks like a period: the last
// rounds were like those so many before them. It returns 0 where there is none. What
// only looks like one is found out later.
func (l *leaps) period() int {
	mask, last := len(l.beats)-1, l.rounds-1
	for n := 1; n <= maxPeriod; n++ {
		alike, need := 0, max(n, l.window)
		if n+need > min(l.rounds, len(l.beats)) {
			return 0
		}
		for alike < need && l.beats[(last-alike)&mask] == l.beats[(last-alike-n)&mask] {
			alike++
		}
		if alike == need {
			return n
		}
	}
	return 0
}

// measure runs two periods and finds out how everything moves in a period. It reports
// whether it moves evenly.
func (l *leaps) measure(rounds int) bool {
	s := l.s
	s.unclear = len(s.aside) > 0
	l.a.keep(s)
	l.trace = append(l.trace[:0], l.record(rounds, l.beat)...)
	l.b.keep(s)
	second := l.record(rounds, l.beat)
	l.c.keep(s)
	return s.fault == nil && !s.unclear && bytes.Equal(l.trace, second) && l.slopes.find(&l.a, &l.b, &l.c)
}

// record runs a period and returns which sides its comparisons took.
func (l *leaps) record(rounds int, after func()) []byte {
	s := l.s
	s.tracing, s.trace = true, s.trace[:0]
	for range rounds {
		s.round()
		after()
		if len(s.trace) > maxTrace {
			s.tracing, s.unclear = false, true
		}
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
	same := bytes.Equal(l.trace, l.record(rounds, func() {}))
	if !same || s.fault != nil || s.unclear {
		l.c.resume(s)
		return false
	}
	// What ranks waited for messages on the wire changes evenly from period to period.
	for rank := range s.ranks {
		r, was := &s.ranks[rank], &l.a.ranks[rank]
		last := l.c.ranks[rank].communication - l.b.ranks[rank].communication
		leapt := n * (last + r.communication - was.communication) / 2
		if r.final > was.final {
			r.counted += leapt
		}
		r.communication += leapt
		was.communication += leapt
	}
	l.a, l.b = l.b, l.a
	l.c.keep(s)
	return true
}
