package placement

import (
	"cmp"
	"slices"
)

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
			row, _ := l.row(all, h.from, h.to, 0)
			for _, p := range row {
				p.offset = offset
				l.take(h, p)
			}
		}
	}
}
