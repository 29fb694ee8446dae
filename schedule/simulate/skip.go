package simulate

import (
	"math/bits"

	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// skips detects cycles in a simulation and skips their repeats. Each time is the sum of an earlier time
// and costs, or the maximum of two such sums, so a repeats.Trend applies.
//
// A cycle consists of one or more periods of RoundRobin. A rank's clock need not advance by the same
// amount in each period: if the chain of dependencies that determines the times returns to the same
// action only after k periods (a critical circuit of length k), the increments recur only after k
// periods.
type skips struct {
	trend repeats.Trend
	s     *simulation

	hashes  []uint64 // a ring buffer of the hashes of the last periods
	periods int      // the number of periods since repeats were last skipped
	window  int      // the minimum number of periods whose hashes must recur before cycles are run for Trend

	boxes []boxStart // by mailbox
	waits []waits    // by rank
}

// boxStart is the state of a mailbox at the beginning of a cycle. Usually a cycle takes as many parcels
// as it appends. Otherwise the mailbox grows, because its sender runs ahead: a cycle takes parcels
// only from the first progression, if there is one, and none of those that it appends.
type boxStart struct {
	head, tail uint
	growing    bool
}

// waits holds the wait times of a rank in the last two cycles, by kind.
type waits struct {
	start              [numWaits]int64 // the totals at the beginning of the last cycle
	last, previous     [numWaits]int64 // the waits in the last cycle and in the one before it
	tail, previousTail [numWaits]int64 // the parts of these waits after the rank's last computation
}

const (
	// maxCycle is the maximum number of periods of a cycle, a power of two.
	maxCycle = 512
	// maxCompared is the maximum number of parcels in a compared state.
	maxCompared = 1 << 16
)

// trySkip is called after each period. If the hashes of the last periods recur, it runs two more
// cycles, and Trend skips as many further cycles as it can predict from them.
func (l *skips) trySkip() {
	l.recordHash()
	periods := l.cycle()
	if periods == 0 || l.s.parcels() > maxCompared {
		return
	}
	l.s.hiddenState = len(l.s.overtaken) > 0
	n := l.trend.Run(l, func() {
		for range periods {
			l.s.period()
			l.recordHash()
		}
	})
	if n > 0 {
		l.periods, l.window = 0, 0
	} else {
		l.window = min(2*l.window+1, maxCycle)
	}
}

// recordHash records a hash of the period, which covers the time by which each rank advanced, and the
// segment and the index in its body that the rank has reached.
func (l *skips) recordHash() {
	const prime = 0x9e3779b97f4a7c15
	hash := uint64(0)
	for rank := range l.s.ranks {
		r := &l.s.ranks[rank]
		for _, v := range [...]uint64{uint64(r.clock - r.previousClock), uint64(r.cursor.Index), uint64(r.cursor.Segment)} {
			hash = (bits.RotateLeft64(hash, 23) ^ v) * prime
		}
		r.previousClock = r.clock
	}
	l.hashes[l.periods%len(l.hashes)] = hash
	l.periods++
}

// cycle returns the smallest n such that the hashes of the last max(n, window) periods equal the hashes
// n periods earlier, or 0 if there is no such n. Trend decides whether n periods are a cycle.
func (l *skips) cycle() int {
	mask, last := len(l.hashes)-1, l.periods-1
	for n := 1; n <= maxCycle; n++ {
		equal, need := 0, max(n, l.window)
		if n+need > min(l.periods, len(l.hashes)) {
			return 0
		}
		for equal < need && l.hashes[(last-equal)&mask] == l.hashes[(last-equal-n)&mask] {
			equal++
		}
		if equal == need {
			return n
		}
	}
	return 0
}

// Began records the state at the beginning of a cycle.
func (l *skips) Began() {
	for i := range l.s.boxes {
		b, start := &l.s.boxes[i], &l.boxes[i]
		*start = boxStart{b.head, b.tail, b.boundary != noBoundary || b.head == start.head && b.tail != start.tail}
	}
	for rank := range l.s.ranks {
		l.waits[rank].start = l.s.ranks[rank].waits
	}
}

// State adds the configuration: the state of all ranks, links and mailboxes.
func (l *skips) State(s *repeats.State) {
	if l.s.hiddenState || l.s.fault != nil {
		s.Unclear()
		return
	}
	for i := range l.s.ranks {
		r := &l.s.ranks[i]
		if !r.cursor.State(s) || !s.Fixed(flag(r.started)) || !s.Fixed(int64(r.pair.Kind())) ||
			!s.Moving(r.clock) || !s.Moving(int64(r.pair.Microbatch())) ||
			!s.Moving(r.last) || !s.Moving(r.final) || !s.Moving(r.busy) {
			return
		}
	}
	for i := range l.s.linkStates {
		if link := &l.s.linkStates[i]; !s.Moving(link.freeAt) || !s.Moving(int64(link.slots)) {
			return
		}
	}
	for i := range l.s.boxes {
		if !l.box(s, i) {
			return
		}
	}
}

func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

// box adds the state of a mailbox and its first parcels to the configuration.
func (l *skips) box(s *repeats.State, i int) bool {
	b := &l.s.boxes[i]
	front, done := l.frontLength(i), int64(0)
	if len(b.progressions) > 0 {
		done = b.progressions[0].done
	}
	if !s.Fixed(int64(front)) || !s.Fixed(int64(len(b.progressions))) || !s.Moving(int64(b.head)) || !s.Moving(int64(b.tail)) || !s.Moving(done) {
		return false
	}
	for k := range front {
		p := b.at(b.head + k)
		if !s.Moving(p.key) || !s.Moving(p.departure) || !s.Moving(p.arrival) || !s.Moving(p.ready) {
			return false
		}
	}
	return true
}

// frontLength returns the number of parcels at the front of a mailbox that belong to the configuration:
// those before the first progression or, if there is none, all parcels, but none of a mailbox that grows.
func (l *skips) frontLength(i int) uint {
	switch b := &l.s.boxes[i]; {
	case b.boundary != noBoundary:
		return b.boundary - b.head
	case l.boxes[i].growing:
		return 0
	default:
		return b.tail - b.head
	}
}

// The numbers of moving values of a rank, a link, a mailbox and a parcel in State.
const rankValues, linkValues, boxValues, parcelValues = 6, 2, 3, 4

// Moves returns the maximum number of cycles that can be skipped such that one more can be run: no
// segment and no progression ends, no link becomes full, and no time overflows.
func (l *skips) Moves(deltas []int64) (shift, limit int64) {
	largest := int64(1)
	for _, n := range deltas {
		largest = max(largest, n, -n)
	}
	limit = maxTotal / 2 / largest
	for i := range l.s.ranks {
		r := &l.s.ranks[i]
		w := &l.waits[i]
		w.previous, w.previousTail = w.last, w.tail
		for k, total := range r.waits {
			w.last[k], w.tail[k] = total-w.start[k], total-r.counted[k]
		}
		if step := deltas[rankValues*i]; step > 0 {
			limit = min(limit, int64(r.cursor.Program[r.cursor.Segment].Repeat-1-r.cursor.Repeat)/step-1)
			shift = 1
		}
	}
	if shift == 0 {
		return 0, 0
	}
	deltas = deltas[rankValues*len(l.s.ranks):]
	for i := range l.s.linkStates {
		if step := deltas[linkValues*i+1]; step < 0 {
			limit = min(limit, int64(l.s.linkStates[i].slots)/-step-1)
		}
	}
	deltas = deltas[linkValues*len(l.s.linkStates):]
	for i := range l.s.boxes {
		b, head, tail, done := &l.s.boxes[i], deltas[0], deltas[1], deltas[2]
		if l.boxes[i].growing && head != 0 || !l.boxes[i].growing && head != tail {
			return 0, 0 // the cycle changes the number of parcels
		}
		if done > 0 {
			limit = min(limit, (b.progressions[0].total-b.progressions[0].done)/done-2)
		}
		deltas = deltas[boxValues+parcelValues*l.frontLength(i):]
	}
	return shift, limit
}

// Skip advances the configuration by n cycles.
func (l *skips) Skip(n int64, deltas []int64) {
	for i := range l.s.ranks {
		r, w, deltas := &l.s.ranks[i], &l.waits[i], deltas[rankValues*i:]
		r.cursor.Skip(int(n * deltas[0]))
		r.clock += n * deltas[1]
		r.pair = r.pair.Shift(int(n * deltas[2]))
		r.last += n * deltas[3]
		r.final += n * deltas[4]
		r.busy += n * deltas[5]
		// A wait is a difference of times, so its length changes by a constant from each cycle to the
		// next: the skipped cycles wait for last+change, last+2*change, and so on.
		for k := range r.waits {
			r.waits[k] += n*w.last[k] + (w.last[k]-w.previous[k])*(n*(n+1)/2)
			if deltas[4] > 0 {
				r.counted[k] = r.waits[k] - (w.tail[k] + n*(w.tail[k]-w.previousTail[k]))
			}
		}
	}
	deltas = deltas[rankValues*len(l.s.ranks):]
	for i := range l.s.linkStates {
		l.s.linkStates[i].freeAt += n * deltas[0]
		l.s.linkStates[i].slots += int(n * deltas[1])
		deltas = deltas[linkValues:]
	}
	for i := range l.s.boxes {
		b, tail, done := &l.s.boxes[i], deltas[1], deltas[2]
		deltas = deltas[boxValues:]
		for k := range l.frontLength(i) {
			p := b.at(b.head + k)
			*p = p.add(parcel{key: deltas[0], departure: deltas[1], arrival: deltas[2], ready: deltas[3]}, n)
			deltas = deltas[parcelValues:]
		}
		if done > 0 {
			b.progressions[0].done += n * done
		}
		if l.boxes[i].growing && tail > 0 {
			steps := make([]parcel, tail)
			for k := range steps {
				last := b.tail - uint(tail) + uint(k)
				steps[k] = b.at(last).sub(*b.at(last - uint(tail)))
			}
			b.appendProgression(steps, n)
		}
	}
}
