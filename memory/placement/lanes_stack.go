package placement

// A stack is a few rows of smaller buffers that together take a lane of a larger size.
// Buffers of a size may be more than at the peak when larger ones are fewer: then a place
// of a larger one is given to smaller ones, and later another way round. In a stack the
// rows are full at the same peaks, so that nothing is lost there.
type stack struct {
	size         int64
	lower, upper int // lower is within the first period
	from, to     int // full at the peaks of these times
	parts        []piece
}

// mostRows is of how many rows a stack is at most, if all are of one size.
const mostRows = 8

// stand gives a stack a buffer that stands for it, and its parts their places there.
func (l *lanes) stand(s *stack) {
	i := int32(len(l.buffers))
	l.buffers = append(l.buffers, laneBuffer{lower: s.lower, upper: s.upper, size: s.size})
	h := l.open(i, s.lower, s.upper, s.size)
	for _, p := range s.parts {
		l.take(h, p)
	}
	l.sortHoles()
}

// hold marks the buffers of all stacks and turns as placed.
func (l *lanes) hold() {
	l.reset()
	for _, s := range l.stacks {
		for _, p := range s.parts {
			l.buffers[p.buffer].placed = true
		}
	}
	for _, t := range l.turns {
		l.buffers[t.small].placed = true
		for _, p := range t.row {
			l.buffers[p.buffer].placed = true
		}
	}
}

// row chooses buffers without a place that follow one another within some times, so that
// one is alive at every peak of them, and marks them as placed. It may prefer what is born
// near to a time. It reports whether it found them; where not, the row ends early.
func (l *lanes) row(all []int32, from, to, near int) (row []piece, found bool) {
	return l.extend(nil, all, from, from, to, to, near)
}

// behind returns the time behind the last peak before a time.
func (l *lanes) behind(time int) int {
	last := time - l.period
	for p := l.peak(last); p < time; p = l.peak(p + 1) {
		last = p
	}
	return last + 1
}

// extend chooses what follows in a row that is taken until a time, so that one is alive at
// every peak from another time on until to, and all have died at the end.
func (l *lanes) extend(row []piece, all []int32, at, from, to, end, near int) ([]piece, bool) {
	for peak := l.peak(max(at, from)); peak < to; peak = l.peak(max(at, from)) {
		n, pick, least := 0, piece{}, 0
		close := l.random.IntN(4) < l.habit.near
		time, periods := l.within(peak)
		for _, i := range all {
			x := &l.buffers[i]
			if x.placed {
				continue
			}
			lag := periods
			if x.lower > time {
				lag--
			}
			for ; x.upper+lag*l.period > peak; lag-- {
				lower := x.lower + lag*l.period
				if lower < at || x.upper+lag*l.period > end {
					continue
				}
				away := lower - at
				if len(row) == 0 {
					away = max(lower-near, near-lower)
				}
				n++
				if away = l.random.IntN(away + 2); close && (n == 1 || away < least) || !close && l.random.IntN(n) == 0 {
					pick, least = piece{i, lag, 0}, away
				}
			}
		}
		if n == 0 {
			return row, false
		}
		row = append(row, pick)
		l.buffers[pick.buffer].placed = true
		at = l.buffers[pick.buffer].upper + pick.lag*l.period
	}
	return row, true
}

// newStack chooses a stack, of buffers that are in no other: most often around one that is
// born where too many are.
func (l *lanes) newStack(over []int32) (s stack, ok bool) {
	l.hold()
	k, seed := l.random.IntN(len(l.sizes)), int32(-1)
	if len(over) > 0 && l.random.IntN(4) > 0 {
		seed = over[l.random.IntN(len(over))]
		if l.buffers[seed].placed {
			return s, false
		}
		k = l.sizeOf(seed)
	}
	wanted := l.sizes[l.random.IntN(len(l.sizes))]
	if wanted <= l.sizes[k] || wanted > l.sizes[k]*mostRows {
		return s, false
	}
	s.from = l.peaks[l.random.IntN(len(l.peaks))]
	if seed >= 0 {
		s.from = l.peak(l.buffers[seed].lower)
	}
	spans := l.random.IntN((l.longest + 1) * len(l.peaks))
	if l.random.IntN(4) < l.habit.short {
		spans = l.random.IntN(spans + 1)
	}
	s.to = s.from + 1
	for range spans {
		s.to = l.peak(s.to) + 1
	}
	mixed := l.random.IntN(2) == 0
	near := s.from
	if seed >= 0 {
		near = l.buffers[seed].lower
	}
	for s.size < wanted {
		var row []piece
		at, end := l.behind(s.from), l.peak(s.to)
		if seed >= 0 {
			row, at = []piece{{buffer: seed}}, l.buffers[seed].upper
			if l.buffers[seed].placed = true; at > end {
				return s, false
			}
			seed = -1
		} else if mixed {
			if k = l.random.IntN(len(l.sizes)); s.size+l.sizes[k] > 2*wanted || wanted > l.sizes[k]*mostRows {
				return s, false
			}
		}
		row, found := l.extend(row, l.bySize[k], at, s.from, s.to, end, near)
		if !found {
			return s, false
		}
		for _, p := range row {
			p.offset = s.size
			s.parts = append(s.parts, p)
		}
		s.size += l.sizes[k]
	}
	l.enclose(&s)
	return s, true
}

// sizeOf returns which size a buffer has.
func (l *lanes) sizeOf(buffer int32) int {
	for k, size := range l.sizes {
		if size == l.buffers[buffer].size {
			return k
		}
	}
	return -1
}

// enclose sets the times of a stack from its parts, the first within the first period.
func (l *lanes) enclose(s *stack) {
	for k, p := range s.parts {
		x := &l.buffers[p.buffer]
		lower, upper := x.lower+p.lag*l.period, x.upper+p.lag*l.period
		if k == 0 {
			s.lower, s.upper = lower, upper
		}
		s.lower, s.upper = min(s.lower, lower), max(s.upper, upper)
	}
	_, periods := l.within(s.lower)
	for k := range s.parts {
		s.parts[k].lag -= periods
	}
	away := periods * l.period
	s.lower, s.upper, s.from, s.to = s.lower-away, s.upper-away, s.from-away, s.to-away
}

// moved returns a stack as it is at other peaks of a period, of buffers that are in no
// stack yet: a period may do the same several times.
func (l *lanes) moved(s *stack, by int) (m stack, ok bool) {
	l.hold()
	m = stack{size: s.size, from: s.from + by, to: s.to + by}
	offset, at := int64(-1), 0
	for _, p := range s.parts {
		if p.offset != offset {
			if offset >= 0 && l.peak(at) < m.to {
				return m, false
			}
			offset, at = p.offset, l.behind(m.from)
		}
		born, periods := l.within(l.buffers[p.buffer].lower + p.lag*l.period + by)
		i := l.bornAt(l.sizeOf(p.buffer), born)
		if i < 0 {
			return m, false
		}
		x := &l.buffers[i]
		lower, upper := born+periods*l.period, x.upper+periods*l.period
		if lower < at || lower > l.peak(max(at, m.from)) || upper > l.peak(m.to) {
			return m, false
		}
		x.placed, at = true, upper
		m.parts = append(m.parts, piece{i, periods, p.offset})
	}
	if l.peak(at) < m.to {
		return m, false
	}
	l.enclose(&m)
	return m, true
}

// bornAt returns a buffer of a size without a place, by its birth: -1 is none.
func (l *lanes) bornAt(size, time int) int32 {
	for _, i := range l.bySize[size] {
		if x := &l.buffers[i]; x.lower == time && !x.placed {
			return i
		}
	}
	return -1
}
