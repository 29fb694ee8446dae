package placement

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// lanes lays out a round without a guess at its cycle. Buffers of one size follow one
// another in lanes, and what follows what is the same in every period: so an order that
// comes back after s periods takes s lanes, each of them a period behind the one before.
// As many lanes are enough as there are buffers of the size alive at once. Larger sizes
// come first; what is smaller lives in holes of their lanes, from a death there to the
// next birth.
//
// All of that is as low as can be where every size has the most alive when all of them
// together have. For sizes that have not there are stacks and turns.
type lanes struct {
	period  int
	unit    int64 // sizes and offsets are multiples of it
	buffers []laneBuffer
	own     int // how many of them are the round's; the others stand for stacks
	sizes   []int64
	bySize  [][]int32 // buffers of the round, what lives longest first
	peaks   []int     // times within the period at which hardly anything is free
	highest []int     // those at which nothing is
	toPeak  []int32   // by time within the period, how long it is to a peak
	longest int       // life, in periods

	laneState

	// What came out.
	height int64
	excess int64   // how far buffers of a size are more than at the peaks, over all births; 0 is none
	cycle  int     // periods after which all lies where it did
	over   []int32 // buffers that are born into an excess

	source *rand.PCG
	random *rand.Rand
	holes  []hole // by length
	load   []int32
	heads  []int64
	rest   []int32
	events []laneEvent
	free   []int32
	next   []int32
	best   []int32
	seen   []bool
}

// laneState is what an arrangement of lanes is made from.
type laneState struct {
	stacks []stack
	turns  []turn
	seed   uint64 // of what is left to chance
	orders int    // of a size that are tried, for a short cycle
	habit  habit
}

func (s laneState) clone() laneState {
	return laneState{slices.Clone(s.stacks), slices.Clone(s.turns), s.seed, s.orders, s.habit}
}

// laneBuffer is a buffer of a round, as every period has one.
type laneBuffer struct {
	lower, upper int // lower is within the first period
	size         int64
	placed       bool
	home         home
}

// home is where a buffer lies. In is the buffer in whose place it is, -1 for none: that of
// lag periods before, with an offset there. What is in nobody's place has lanes of a
// width, and is in the one that the period says. Every second time that it is in the
// same lane it lies so much higher there.
type home struct {
	in     int32
	lag    int
	offset int64
	lanes  int
	width  int64
	higher int64
}

func newLanes(r *Round, least int, seed uint64) *lanes {
	l := &lanes{period: int(r.Period), unit: 1, own: len(r.Buffers), longest: least, source: rand.NewPCG(seed, 0)}
	l.random = rand.New(l.source)
	for _, b := range r.Buffers {
		l.unit = max(l.unit, b.Align)
	}
	for i, b := range r.Buffers {
		x := laneBuffer{lower: int(b.Lower), upper: int(b.Upper), size: alignUp(b.Size, l.unit)}
		l.buffers = append(l.buffers, x)
		k, known := slices.BinarySearchFunc(l.sizes, x.size, func(a, b int64) int { return cmp.Compare(b, a) })
		if !known {
			l.sizes, l.bySize = slices.Insert(l.sizes, k, x.size), slices.Insert(l.bySize, k, nil)
		}
		l.bySize[k] = append(l.bySize[k], int32(i))
	}
	for _, all := range l.bySize {
		slices.SortStableFunc(all, func(x, y int32) int { return cmp.Compare(l.life(y), l.life(x)) })
	}
	l.load, l.heads = make([]int32, l.period+1), make([]int64, l.period+1)
	l.findPeaks()
	return l
}

// nearPeak is which part of the most may be free at a peak.
const nearPeak = 512

// findPeaks finds when most is alive, or all but a little: of times in a row the first at
// which there is most.
func (l *lanes) findPeaks() {
	bytes := l.heads
	for i := range l.buffers {
		x := &l.buffers[i]
		whole, rest := l.life(int32(i))/l.period, l.life(int32(i))%l.period
		bytes[0] += int64(whole) * x.size
		if rest > 0 {
			l.span(x.lower, rest, func(from, to int) { bytes[from] += x.size; bytes[to] -= x.size })
		}
	}
	most := int64(0)
	for t := range l.period {
		if t > 0 {
			bytes[t] += bytes[t-1]
		}
		most = max(most, bytes[t])
	}
	l.toPeak = make([]int32, l.period)
	for t, run := 0, false; t < l.period; t++ {
		switch near := bytes[t] >= most-most/nearPeak; {
		case near && !run:
			l.peaks = append(l.peaks, t)
		case near && bytes[t] > bytes[l.peaks[len(l.peaks)-1]]:
			l.peaks[len(l.peaks)-1] = t
		default:
			run = near
			continue
		}
		run = true
	}
	for _, t := range l.peaks {
		if bytes[t] == most {
			l.highest = append(l.highest, t)
		}
	}
	to := int32(l.peaks[0])
	for t := l.period - 1; t >= 0; t-- {
		to++
		if _, is := slices.BinarySearch(l.peaks, t); is {
			to = 0
		}
		l.toPeak[t] = to
	}
}

// span calls f for the times within a period that a life covers which begins within it
// and is shorter.
func (l *lanes) span(from, life int, f func(from, to int)) {
	if from+life <= l.period {
		f(from, from+life)
		return
	}
	f(from, l.period)
	f(0, from+life-l.period)
}

func (l *lanes) life(buffer int32) int { return l.buffers[buffer].upper - l.buffers[buffer].lower }

// within returns a time within its period, and which period that is.
func (l *lanes) within(time int) (t, period int) {
	t, period = time%l.period, time/l.period
	if t < 0 {
		t, period = t+l.period, period-1
	}
	return t, period
}

// peak returns the first peak from a time on.
func (l *lanes) peak(time int) int {
	t, _ := l.within(time)
	return time + int(l.toPeak[t])
}

// arrange lays out all buffers, with the stacks and turns that there are.
func (l *lanes) arrange() {
	l.reset()
	l.source.Seed(l.laneState.seed, 0)
	l.height, l.excess, l.cycle, l.over = 0, 0, 1, l.over[:0]
	for i := range l.turns {
		l.takeTurns(&l.turns[i])
	}
	all := slices.Clone(l.sizes)
	for i := range l.stacks {
		all = append(all, l.stacks[i].size)
		l.stand(&l.stacks[i])
	}
	slices.Sort(all)
	filled := l.random.IntN(2) == 0
	for k := len(all) - 1; k >= 0; k-- {
		if k == len(all)-1 || all[k] != all[k+1] {
			l.size(all[k], filled)
		}
	}
}

// reset takes all buffers out of their places.
func (l *lanes) reset() {
	l.buffers, l.holes = l.buffers[:l.own], l.holes[:0]
	for i := range l.buffers {
		l.buffers[i].placed = false
	}
}

// put says where a buffer is.
func (l *lanes) put(buffer int32, h home) {
	l.buffers[buffer].placed, l.buffers[buffer].home = true, h
}

// size places what is of a size: in the shortest holes that there are, what lives longest
// first, and what fits into none in lanes of its own. Filled has holes that are open at
// peaks filled before.
func (l *lanes) size(size int64, filled bool) {
	var all []int32
	if k, known := slices.BinarySearchFunc(l.sizes, size, func(a, b int64) int { return cmp.Compare(b, a) }); known {
		all = l.bySize[k]
	}
	if filled {
		l.fill(all, size)
	}
	l.rest = l.rest[:0]
	for _, i := range all {
		if l.buffers[i].placed {
			continue
		}
		at, _ := slices.BinarySearchFunc(l.holes, l.life(i), func(h hole, life int) int { return cmp.Compare(h.to-h.from, life) })
		for ; at < len(l.holes); at++ {
			if h := &l.holes[at]; h.size >= size {
				if p, ok := l.fit(h, i); ok {
					l.take(h, p)
					break
				}
			}
		}
		if !l.buffers[i].placed {
			l.rest = append(l.rest, i)
		}
	}
	for i := l.own; i < len(l.buffers); i++ {
		if l.buffers[i].size == size {
			l.rest = append(l.rest, int32(i))
		}
	}
	if len(l.rest) > 0 {
		l.drive(size)
		l.sortHoles()
	}
}

// offset returns where a buffer of a period lies.
func (l *lanes) offset(buffer int32, period int) int64 {
	h := &l.buffers[buffer].home
	if period -= h.lag; h.in >= 0 {
		return l.offset(h.in, period) + h.offset
	}
	turns := 2 * h.lanes
	turn := (period%turns + turns) % turns
	at := h.offset + int64(turn%h.lanes)*h.width
	if turn >= h.lanes {
		at += h.higher
	}
	return at
}

// offsets returns where all buffers of the round lie in so many periods.
func (l *lanes) offsets(periods int) []int64 {
	all := make([]int64, 0, periods*l.own)
	for k := range periods {
		for i := range l.own {
			all = append(all, l.offset(int32(i), k))
		}
	}
	return all
}
