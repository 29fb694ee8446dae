package schedule

import "slices"

// snapshot is the state of a simulation in which nothing is laid aside.
type snapshot struct {
	ranks   []simRank
	free    []simLink
	boxes   []boxed
	parcels []parcel // of all mailboxes
	piles   []pile   // of all mailboxes
}

// boxed is a mailbox in a snapshot.
type boxed struct {
	head, tail, stop uint
	parcels, piles   int // where they begin in the snapshot
}

// keep takes a snapshot.
func (k *snapshot) keep(s *simulation) {
	k.ranks = append(k.ranks[:0], s.ranks...)
	k.free = append(k.free[:0], s.free...)
	k.boxes, k.parcels, k.piles = k.boxes[:0], k.parcels[:0], k.piles[:0]
	for i := range s.boxes {
		b := &s.boxes[i]
		k.boxes = append(k.boxes, boxed{b.head, b.tail, b.stop, len(k.parcels), len(k.piles)})
		for n := b.head; n != b.tail; n++ {
			k.parcels = append(k.parcels, *b.at(n))
		}
		k.piles = append(k.piles, b.piles...)
	}
}

// resume goes back to the snapshot.
func (k *snapshot) resume(s *simulation) {
	copy(s.ranks, k.ranks)
	copy(s.free, k.free)
	for i := range s.boxes {
		b, was := &s.boxes[i], &k.boxes[i]
		b.head, b.tail, b.stop = was.head, was.tail, was.stop
		for n := b.head; n != b.tail; n++ {
			*b.at(n) = k.parcels[was.parcels+int(n-b.head)]
		}
		b.piles = append(b.piles[:0], k.pilesOf(i)...)
	}
	clear(s.aside)
	s.disorder, s.fault = false, nil
}

// pilesOf returns the piles of a mailbox.
func (k *snapshot) pilesOf(i int) []pile {
	end := len(k.piles)
	if i+1 < len(k.boxes) {
		end = k.boxes[i+1].piles
	}
	return k.piles[k.boxes[i].piles:end]
}

// parcel returns the parcel of a number in a mailbox.
func (k *snapshot) parcel(i int, number uint) parcel {
	return k.parcels[k.boxes[i].parcels+int(number-k.boxes[i].head)]
}

// slopes say how the state of a simulation moves in a period.
type slopes struct {
	ranks []simRank // how far each moves; only position, repeat, clock and pair
	free  []int64
	boxes []boxSlope

	steepest int64 // the largest of all times
}

// boxSlope is how a mailbox moves. Either it has no piles and as many parcels as a
// period before, and front is by how far each one is from the one that was in its place. Or what is
// taken comes out of the first pile, and what is put stays there.
type boxSlope struct {
	front   []parcel // by parcel from the first one on, up to the first pile
	put     []parcel // by parcel that a period puts to others, how far it is from that of the period before
	unfolds int64    // how often a period writes out the first pile
}

// find finds the slopes from three snapshots a period apart. It reports false where
// not all moves evenly.
func (m *slopes) find(a, b, c *snapshot) bool {
	m.ranks, m.free, m.steepest = slices.Grow(m.ranks[:0], len(c.ranks))[:len(c.ranks)], m.free[:0], 0
	for i := range c.ranks {
		x, y, z := &a.ranks[i], &b.ranks[i], &c.ranks[i]
		if x.segment != z.segment || x.index != y.index || y.index != z.index || x.posted != y.posted || y.posted != z.posted ||
			x.started != z.started || (x.pair == 0) != (y.pair == 0) || (y.pair == 0) != (z.pair == 0) {
			return false
		}
		first, second := y.minus(x), z.minus(y)
		if first != second {
			return false
		}
		m.ranks[i] = second
		m.steep(second.clock)
	}
	for i := range c.free {
		x, y, z := &a.free[i], &b.free[i], &c.free[i]
		if x.room != y.room || y.room != z.room || z.until-y.until != y.until-x.until {
			return false
		}
		m.free = append(m.free, z.until-y.until)
		m.steep(z.until - y.until)
	}
	m.boxes = slices.Grow(m.boxes[:0], len(c.boxes))[:len(c.boxes)]
	for i := range c.boxes {
		if !m.box(i, a, b, c) {
			return false
		}
	}
	return true
}

// box finds the slopes of a mailbox.
func (m *slopes) box(i int, a, b, c *snapshot) bool {
	x, y, z := &a.boxes[i], &b.boxes[i], &c.boxes[i]
	slope := boxSlope{}
	end := z.tail
	if p, q, r := a.pilesOf(i), b.pilesOf(i), c.pilesOf(i); len(p)+len(q)+len(r) > 0 || x.tail-x.head != y.tail-y.head || y.tail-y.head != z.tail-z.head {
		if x.head != y.head || y.head != z.head || len(p) != len(q) || len(q) != len(r) || y.tail-x.tail != z.tail-y.tail || x.stop != y.stop || y.stop != z.stop {
			return false
		}
		for k := range z.tail - y.tail {
			step := c.parcel(i, y.tail+k).minus(b.parcel(i, x.tail+k))
			slope.put = append(slope.put, step)
			m.steepParcel(step)
		}
		end = z.head
		if len(r) > 0 {
			end, slope.unfolds = z.stop, r[0].done-q[0].done
			if slope.unfolds != q[0].done-p[0].done {
				return false
			}
		}
	}
	for k := range end - z.head {
		step := c.parcel(i, z.head+k).minus(b.parcel(i, y.head+k))
		if step != b.parcel(i, y.head+k).minus(a.parcel(i, x.head+k)) {
			return false
		}
		slope.front = append(slope.front, step)
		m.steepParcel(step)
	}
	m.boxes[i] = slope
	return true
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

// move moves the state on by n periods.
func (m *slopes) move(s *simulation, n int64) {
	for i := range s.ranks {
		r, by := &s.ranks[i], &m.ranks[i]
		r.position += n * by.position
		r.repeat += int(n) * by.repeat
		r.clock += n * by.clock
		r.pair += Action(n) * by.pair
	}
	for i := range s.free {
		s.free[i].until += n * m.free[i]
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
