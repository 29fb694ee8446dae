package placement

import (
	"cmp"
	"slices"
)

// laneEvent is a birth or a death of a buffer, behind a time at which all lanes are full.
type laneEvent struct {
	time   int
	birth  bool
	buffer int32
}

// follows returns after how many periods a buffer can be born where another one was.
func (l *lanes) follows(was, next int32) int {
	_, before := l.within(l.buffers[next].lower - l.buffers[was].upper)
	return -before
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
