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

// hole is room for what is smaller, in the place of a buffer, lag periods later than that.
type hole struct {
	in       int32
	lag      int
	from, to int // from is within the first period
	size     int64
	taken    []piece
}

// piece is a buffer at an offset in something, lag periods later than that.
type piece struct {
	buffer int32
	lag    int
	offset int64
}

// laneEvent is a birth or a death of a buffer, behind a time at which all lanes are full.
type laneEvent struct {
	time   int
	birth  bool
	buffer int32
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

// follows returns after how many periods a buffer can be born where another one was.
func (l *lanes) follows(was, next int32) int {
	_, before := l.within(l.buffers[next].lower - l.buffers[was].upper)
	return -before
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

// open makes a hole in the place of a buffer, at times of the period in which that is
// born. Holes are in order only after sortHoles.
func (l *lanes) open(in int32, from, to int, size int64) *hole {
	if len(l.holes) < cap(l.holes) {
		l.holes = l.holes[:len(l.holes)+1]
	} else {
		l.holes = append(l.holes, hole{})
	}
	t, lag := l.within(from)
	h := &l.holes[len(l.holes)-1]
	*h = hole{in: in, lag: lag, from: t, to: to - lag*l.period, size: size, taken: h.taken[:0]}
	return h
}

func (l *lanes) sortHoles() {
	slices.SortStableFunc(l.holes, func(a, b hole) int { return cmp.Compare(a.to-a.from, b.to-b.from) })
}

// take puts a piece into a hole.
func (l *lanes) take(h *hole, p piece) {
	h.taken = append(h.taken, p)
	l.put(p.buffer, home{in: h.in, lag: p.lag + h.lag, offset: p.offset})
}

// blocked returns where something ends that is in the way of a buffer in a hole: 0 is
// nothing.
func (l *lanes) blocked(h *hole, lower, upper int, offset, size int64) int64 {
	for _, p := range h.taken {
		x := &l.buffers[p.buffer]
		if x.lower+p.lag*l.period < upper && lower < x.upper+p.lag*l.period && p.offset < offset+size && offset < p.offset+x.size {
			return p.offset + x.size
		}
	}
	return 0
}

// fit returns where in a hole a buffer has room.
func (l *lanes) fit(h *hole, buffer int32) (piece, bool) {
	x, lag := &l.buffers[buffer], 0
	if x.lower < h.from {
		lag = 1
	}
	for ; x.upper+lag*l.period <= h.to; lag++ {
		offset := int64(0)
		for offset+x.size <= h.size {
			end := l.blocked(h, x.lower+lag*l.period, x.upper+lag*l.period, offset, x.size)
			if end == 0 {
				return piece{buffer, lag, offset}, true
			}
			offset = end
		}
	}
	return piece{}, false
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

// fill puts buffers into the holes that are open at peaks, so that they are full then.
func (l *lanes) fill(all []int32, size int64) {
	for i := range l.holes {
		h := &l.holes[i]
		if h.size < size || l.peak(h.from) >= h.to {
			continue
		}
		for offset := int64(0); offset+size <= h.size; offset += size {
			if l.blocked(h, h.from, h.to, offset, size) != 0 {
				continue
			}
			row, _ := l.row(all, h.from, h.to, true, 0)
			for _, p := range row {
				p.offset = offset
				l.take(h, p)
			}
		}
	}
}

// drive gives lanes to the rest of a size, as many as are alive at once.
func (l *lanes) drive(size int64) {
	count, full := l.count(size)
	base := l.height
	l.height += int64(count) * size
	l.order(full)
	// An order comes back to a buffer after so many periods: so many lanes are its.
	clear(l.seen)
	for _, start := range l.rest {
		if l.seen[start] {
			continue
		}
		round, first := 0, 0
		for i := start; !l.seen[i]; i = l.best[i] {
			l.seen[i] = true
			round += l.follows(i, l.best[i])
		}
		for i, again := start, false; i != start || !again; i, again = l.best[i], true {
			l.put(i, home{in: -1, lag: first, offset: base, lanes: round, width: size})
			born := l.follows(i, l.best[i])
			if next := l.buffers[l.best[i]].lower + born*l.period; next > l.buffers[i].upper {
				l.open(i, l.buffers[i].upper, next, size)
			}
			first += born
		}
		base += int64(round) * size
		l.cycle = leastCommon(l.cycle, round)
	}
}

// count returns how many of the rest are alive at most, and when they are first. It adds
// to the excess what is more than at the peaks.
func (l *lanes) count(size int64) (most, full int) {
	load := l.load
	clear(load)
	for _, i := range l.rest {
		x := &l.buffers[i]
		whole, rest := l.life(i)/l.period, l.life(i)%l.period
		load[0] += int32(whole)
		if rest > 0 {
			l.span(x.lower, rest, func(from, to int) { load[from]++; load[to]-- })
		}
	}
	for t := 1; t < l.period; t++ {
		load[t] += load[t-1]
	}
	for t, n := range load[:l.period] {
		if int(n) > most {
			most, full = int(n), t
		}
	}
	at := int32(most)
	for _, t := range l.highest {
		at = min(at, load[t])
	}
	if int(at) == most {
		return most, full
	}
	for t := range l.period {
		if load[t] > at && (t == 0 || load[t] != load[t-1]) {
			l.excess += int64(load[t]-at) * size
		}
	}
	for _, i := range l.rest {
		if int(i) < l.own && load[l.buffers[i].lower] > at {
			l.over = append(l.over, i)
		}
	}
	return most, full
}

// order says which of the rest follows which. All lanes are full at a time, so that what
// dies from then on is followed by what is born until it comes again.
func (l *lanes) order(full int) {
	l.events = l.events[:0]
	for _, i := range l.rest {
		born, _ := l.within(l.buffers[i].lower - full - 1)
		dies, _ := l.within(l.buffers[i].upper - full - 1)
		l.events = append(l.events, laneEvent{born, true, i}, laneEvent{dies, false, i})
	}
	slices.SortFunc(l.events, func(a, b laneEvent) int {
		if c := cmp.Compare(a.time, b.time); c != 0 || a.birth == b.birth {
			return cmp.Or(c, cmp.Compare(a.buffer, b.buffer))
		}
		if a.birth {
			return 1
		}
		return -1
	})
	l.next = slices.Grow(l.next[:0], len(l.buffers))[:len(l.buffers)]
	l.best = slices.Grow(l.best[:0], len(l.buffers))[:len(l.buffers)]
	l.seen = slices.Grow(l.seen[:0], len(l.buffers))[:len(l.buffers)]
	shortest := 0
	for range l.orders {
		l.draw()
		if c := l.rounds(); shortest == 0 || c < shortest {
			shortest = c
			copy(l.best, l.next)
		}
	}
}

// draw lets each birth take a lane that is free: often the one of its own kind, else the
// one that is free for the longest or the shortest time, or any.
func (l *lanes) draw() {
	way := l.random.IntN(3)
	l.free = l.free[:0]
	for _, e := range l.events {
		if !e.birth {
			l.free = append(l.free, e.buffer)
			continue
		}
		k := 0
		switch own := slices.Index(l.free, e.buffer); {
		case own >= 0 && l.random.IntN(4) > 0:
			k = own
		case way == 0:
			k = l.random.IntN(len(l.free))
		case way == 1:
			k = len(l.free) - 1
		}
		l.next[l.free[k]] = e.buffer
		l.free = slices.Delete(l.free, k, k+1)
	}
}

// rounds returns after how many periods an order and all before it come back.
func (l *lanes) rounds() int {
	cycle := l.cycle
	clear(l.seen)
	for _, start := range l.rest {
		if l.seen[start] {
			continue
		}
		round := 0
		for i := start; !l.seen[i]; i = l.next[i] {
			l.seen[i] = true
			round += l.follows(i, l.next[i])
		}
		cycle = leastCommon(cycle, round)
	}
	return cycle
}

// maxCycle is how long a cycle can be: the least common multiple of many orders is soon
// beyond all use.
const maxCycle = 1 << 30

// leastCommon returns the least common multiple, or maxCycle where it is more.
func leastCommon(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return min(a/x*b, maxCycle)
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
