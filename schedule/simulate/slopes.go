package simulate

import "github.com/weir-ml/weir/schedule"

// slopes say how the state of a simulation moves in a period.
type slopes struct {
	ranks []simRank // of these only position, repeat, clock and pair
	free  []simLink // of these only until and room
	boxes []boxSlope

	steepest int64 // of all of them, up or down
}

// boxSlope is how a mailbox moves. Usually it has as many parcels as a period before.
// Otherwise parcels pile up in it: a period takes what comes out of the first pile, or
// nothing, and what it puts stays.
type boxSlope struct {
	front   []parcel // by parcel from the first one on, but for those before which a pile stands
	put     []parcel // by parcel that a period adds to a pile
	unfolds int64    // how often a period writes out the first pile
}

// find finds the slopes from three snapshots a period apart. It reports false where
// not all moves evenly.
func (m *slopes) find(a, b, c *snapshot) bool {
	m.ranks, m.free, m.boxes, m.steepest = m.ranks[:0], m.free[:0], m.boxes[:0], 1
	for i := range c.ranks {
		x, y, z := &a.ranks[i], &b.ranks[i], &c.ranks[i]
		step := z.minus(y)
		if x.simSpot != y.simSpot || y.simSpot != z.simSpot || step != y.minus(x) {
			return false
		}
		m.ranks = append(m.ranks, step)
		m.steep(step.clock)
	}
	for i := range c.free {
		x, y, z := &a.free[i], &b.free[i], &c.free[i]
		step := z.minus(y)
		if step != y.minus(x) {
			return false
		}
		m.free = append(m.free, step)
		m.steep(step.until)
	}
	for i := range c.boxes {
		slope, even := boxSlope{}, false
		if x, y, z := &a.boxes[i], &b.boxes[i], &c.boxes[i]; z.stop == noStop && x.stop == noStop && x.size() == y.size() && y.size() == z.size() {
			even = m.front(&slope, z.size(), i, a, b, c)
		} else {
			even = m.pile(&slope, i, a, b, c)
		}
		if !even {
			return false
		}
		m.boxes = append(m.boxes, slope)
	}
	return true
}

// front finds the slopes of the first n parcels of a mailbox.
func (m *slopes) front(slope *boxSlope, n uint, i int, a, b, c *snapshot) bool {
	for k := range n {
		x, y, z := a.parcel(i, a.boxes[i].head+k), b.parcel(i, b.boxes[i].head+k), c.parcel(i, c.boxes[i].head+k)
		step := z.minus(y)
		if step != y.minus(x) {
			return false
		}
		slope.front = append(slope.front, step)
		m.steepParcel(step)
	}
	return true
}

// pile finds the slopes of a mailbox in which parcels pile up.
func (m *slopes) pile(slope *boxSlope, i int, a, b, c *snapshot) bool {
	x, y, z := &a.boxes[i], &b.boxes[i], &c.boxes[i]
	if x.head != y.head || y.head != z.head || x.stop != y.stop || y.stop != z.stop || y.tail-x.tail != z.tail-y.tail {
		return false
	}
	for k := range z.tail - y.tail {
		step := c.parcel(i, y.tail+k).minus(b.parcel(i, x.tail+k))
		slope.put = append(slope.put, step)
		m.steepParcel(step)
	}
	if z.stop == noStop {
		return true
	}
	first, second, third := a.pilesOf(i)[0].done, b.pilesOf(i)[0].done, c.pilesOf(i)[0].done
	slope.unfolds = third - second
	return slope.unfolds == second-first && m.front(slope, z.stop-z.head, i, a, b, c)
}

func (m *slopes) steep(slope int64) { m.steepest = max(m.steepest, slope, -slope) }

func (m *slopes) steepParcel(p parcel) {
	m.steep(p.key)
	m.steep(p.wire)
	m.steep(p.there)
	m.steep(p.ready)
}

// minus returns how far a rank is from where it was.
func (r *simRank) minus(was *simRank) simRank {
	return simRank{position: r.position - was.position, repeat: r.repeat - was.repeat, clock: r.clock - was.clock, pair: r.pair - was.pair}
}

// minus returns how far a link is from how it was.
func (l *simLink) minus(was *simLink) simLink {
	return simLink{until: l.until - was.until, room: l.room - was.room}
}

// move moves the state on by n periods.
func (m *slopes) move(s *simulation, n int64) {
	for i := range s.ranks {
		r, by := &s.ranks[i], &m.ranks[i]
		r.position += n * by.position
		r.repeat += int(n) * by.repeat
		r.clock += n * by.clock
		r.pair += schedule.Action(n) * by.pair
	}
	for i := range s.free {
		s.free[i].until += n * m.free[i].until
		s.free[i].room += int(n) * m.free[i].room
	}
	for i := range s.boxes {
		b, by := &s.boxes[i], &m.boxes[i]
		for k, step := range by.front {
			p := b.at(b.head + uint(k))
			*p = p.plus(step, n)
		}
		if by.unfolds > 0 {
			b.piles[0].done += n * by.unfolds
		}
		if len(by.put) > 0 {
			b.heap(by.put, n)
		}
	}
}

// most returns the most periods that the state can be moved on so that one more can be
// run: no segment ends, no pile, and no room on a link.
func (m *slopes) most(s *simulation) int64 {
	n := maxTotal / 2 / m.steepest
	moves := false
	for i := range s.ranks {
		if step := m.ranks[i].repeat; step > 0 {
			r := &s.ranks[i]
			n = min(n, int64((s.plan.Programs[i][r.segment].Repeat-1-r.repeat)/step)-1)
			moves = true
		}
	}
	for i := range s.free {
		if step := m.free[i].room; step < 0 {
			n = min(n, int64(s.free[i].room/-step)-1)
		}
	}
	for i := range s.boxes {
		if step := m.boxes[i].unfolds; step > 0 {
			p := &s.boxes[i].piles[0]
			n = min(n, (p.total-p.done)/step-2)
		}
	}
	if !moves {
		return 0
	}
	return n
}
