package simulate

import (
	"math/bits"

	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// skips skips repeats whose outcome follows from previous repeats (package repeats).
//
// All times result from sums and from comparisons of two times. Therefore the times need not all
// change by the same amount. If two consecutive cycles have changed each number by the same delta
// and made the same comparisons, so does the next cycle, until the result of a comparison changes.
//
// A cycle is a number of periods of the machine. It may need many: times on a critical path through
// k ranks recur only after k periods.
type skips struct {
	repeats.Trend
	s *simulation

	beats   []uint64 // a hash of each of the last periods
	periods int      // the number of periods since repeats were last skipped
	window  int      // the number of periods that must repeat before they count as a possible cycle

	boxes []boxed // by mailbox
	waits []waits // by rank
}

// boxed is the state of a mailbox at the beginning of a cycle. Usually a cycle does not change the
// number of parcels. Otherwise parcels pile up: a cycle takes parcels only from the first pile, or
// none, and the parcels that it puts stay.
type boxed struct {
	head, tail uint
	piles      bool
}

// waits holds the times for which a rank waited for messages on the wire: before the last cycle
// began, in the last cycle and the previous one, and the parts of these two after the last
// computation of the rank.
type waits struct{ before, last, past, after, pastAfter [numWaits]int64 }

const (
	// maxCycle is the maximum number of periods of a cycle, a power of two.
	maxCycle = 512
	// maxKept is the maximum number of parcels whose times are compared.
	maxKept = 1 << 16
)

func newSkips(s *simulation) *skips {
	return &skips{s: s, beats: make([]uint64, 2*maxCycle), waits: make([]waits, len(s.ranks)), boxes: make([]boxed, len(s.boxes))}
}

// look is called after each period. If the last periods look like a cycle, look runs further
// cycles, and skips the cycles that follow from them.
func (l *skips) look() {
	l.beat()
	periods := l.cycle()
	if periods == 0 || l.s.parcels() > maxKept {
		return
	}
	l.s.unclear = len(l.s.aside) > 0
	n := l.Run(l, func() {
		for range periods {
			l.s.period()
			l.beat()
		}
	})
	if n > 0 {
		l.periods, l.window = 0, 0
	} else {
		l.window = min(2*l.window+1, maxCycle)
	}
}

// beat records a hash of the period: the time by which each rank advanced, and its position in its
// body.
func (l *skips) beat() {
	const prime = 0x9e3779b97f4a7c15
	hash := uint64(0)
	for rank := range l.s.ranks {
		r := &l.s.ranks[rank]
		for _, v := range [...]uint64{uint64(r.clock - r.before), uint64(r.Index), uint64(r.Segment)} {
			hash = (bits.RotateLeft64(hash, 23) ^ v) * prime
		}
		r.before = r.clock
	}
	l.beats[l.periods%len(l.beats)] = hash
	l.periods++
}

// cycle returns the smallest n for which the hashes of the last periods equal the hashes n periods
// before, or 0 if there is none. Trend decides whether this is a cycle.
func (l *skips) cycle() int {
	mask, last := len(l.beats)-1, l.periods-1
	for n := 1; n <= maxCycle; n++ {
		alike, need := 0, max(n, l.window)
		if n+need > min(l.periods, len(l.beats)) {
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

// Began records the state at the beginning of a cycle.
func (l *skips) Began() {
	for i := range l.s.boxes {
		b, was := &l.s.boxes[i], &l.boxes[i]
		*was = boxed{b.head, b.tail, b.stop != noStop || b.head == was.head && b.tail != was.tail}
	}
	for rank := range l.s.ranks {
		l.waits[rank].before = l.s.ranks[rank].waits
	}
}

// State adds the configuration: all ranks, links and mailboxes.
func (l *skips) State(s *repeats.State) {
	if l.s.unclear || l.s.fault != nil {
		s.Unclear()
		return
	}
	for i := range l.s.ranks {
		r := &l.s.ranks[i]
		if !r.State(s) || !s.Fixed(flag(r.started)) || !s.Fixed(int64(r.pair.Kind())) ||
			!s.Moving(r.clock) || !s.Moving(int64(r.pair.Microbatch())) ||
			!s.Moving(r.last) || !s.Moving(r.final) {
			return
		}
	}
	for i := range l.s.free {
		if link := &l.s.free[i]; !s.Moving(link.until) || !s.Moving(int64(link.room)) {
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
	front, done := l.front(i), int64(0)
	if len(b.piles) > 0 {
		done = b.piles[0].done
	}
	if !s.Fixed(int64(front)) || !s.Fixed(int64(len(b.piles))) || !s.Moving(int64(b.head)) || !s.Moving(int64(b.tail)) || !s.Moving(done) {
		return false
	}
	for k := range front {
		p := b.at(b.head + k)
		if !s.Moving(p.key) || !s.Moving(p.wire) || !s.Moving(p.there) || !s.Moving(p.ready) {
			return false
		}
	}
	return true
}

// front returns the number of parcels at the front of a mailbox that belong to the configuration:
// all parcels before the first pile.
func (l *skips) front(i int) uint {
	switch b := &l.s.boxes[i]; {
	case b.stop != noStop:
		return b.stop - b.head
	case l.boxes[i].piles:
		return 0
	default:
		return b.tail - b.head
	}
}

// The numbers of moving values of a rank, a link, a mailbox and a parcel.
const ofRank, ofLink, ofBox, ofParcel = 5, 2, 3, 4

// Moves returns the maximum number of cycles that can be skipped such that one more can be run: no
// segment and no pile ends, no link becomes full, and no time overflows.
func (l *skips) Moves(by []int64) (shift, most int64) {
	steepest := int64(1)
	for _, n := range by {
		steepest = max(steepest, n, -n)
	}
	most = maxTotal / 2 / steepest
	for i := range l.s.ranks {
		r := &l.s.ranks[i]
		w := &l.waits[i]
		w.past, w.pastAfter = w.last, w.after
		for k, total := range r.waits {
			w.last[k], w.after[k] = total-w.before[k], total-r.counted[k]
		}
		if step := by[ofRank*i]; step > 0 {
			most = min(most, int64(r.Program[r.Segment].Repeat-1-r.Repeat)/step-1)
			shift = 1
		}
	}
	if shift == 0 {
		return 0, 0
	}
	by = by[ofRank*len(l.s.ranks):]
	for i := range l.s.free {
		if step := by[ofLink*i+1]; step < 0 {
			most = min(most, int64(l.s.free[i].room)/-step-1)
		}
	}
	by = by[ofLink*len(l.s.free):]
	for i := range l.s.boxes {
		b, head, tail, done := &l.s.boxes[i], by[0], by[1], by[2]
		if l.boxes[i].piles && head != 0 || !l.boxes[i].piles && head != tail {
			return 0, 0 // the cycle changes the number of parcels
		}
		if done > 0 {
			most = min(most, (b.piles[0].total-b.piles[0].done)/done-2)
		}
		by = by[ofBox+ofParcel*l.front(i):]
	}
	return shift, most
}

// Skip advances the configuration by n cycles.
func (l *skips) Skip(n int64, by []int64) {
	for i := range l.s.ranks {
		r, w, by := &l.s.ranks[i], &l.waits[i], by[ofRank*i:]
		r.Cursor.Skip(int(n * by[0]))
		r.clock += n * by[1]
		r.pair = r.pair.Shift(int(n * by[2]))
		r.last += n * by[3]
		r.final += n * by[4]
		// The time for which a rank waits for messages on the wire changes by the same amount from
		// each cycle to the next.
		for k := range r.waits {
			r.waits[k] += n*w.last[k] + (w.last[k]-w.past[k])*(n*(n+1)/2)
			if by[4] > 0 {
				r.counted[k] = r.waits[k] - (w.after[k] + n*(w.after[k]-w.pastAfter[k]))
			}
		}
	}
	by = by[ofRank*len(l.s.ranks):]
	for i := range l.s.free {
		l.s.free[i].until += n * by[0]
		l.s.free[i].room += int(n * by[1])
		by = by[ofLink:]
	}
	for i := range l.s.boxes {
		b, tail, done := &l.s.boxes[i], by[1], by[2]
		by = by[ofBox:]
		for k := range l.front(i) {
			p := b.at(b.head + k)
			*p = p.plus(parcel{key: by[0], wire: by[1], there: by[2], ready: by[3]}, n)
			by = by[ofParcel:]
		}
		if done > 0 {
			b.piles[0].done += n * done
		}
		if l.boxes[i].piles && tail > 0 {
			put := make([]parcel, tail)
			for k := range put {
				last := b.tail - uint(tail) + uint(k)
				put[k] = b.at(last).minus(*b.at(last - uint(tail)))
			}
			b.heap(put, n)
		}
	}
}
