package exact

import "math/bits"

// propagateBounds propagates the lower bounds on the offsets of unplaced buffers. It returns false if no
// layout is possible.
func (s *searcher) propagateBounds() bool {
	for again := true; again; {
		again = false
		for w := range s.dirty {
			for s.dirty[w] != 0 {
				c := int32(w*64 + bits.TrailingZeros64(s.dirty[w]))
				s.dirty[w] &= s.dirty[w] - 1
				again = true
				if s.rest[c] > 0 && !s.fits(c) {
					s.failed = c
					return false
				}
			}
		}
	}
	return true
}

// fits reports whether the unplaced buffers of a column fit between its top and the capacity,
// and raises lower bounds accordingly.
func (s *searcher) fits(c int32) bool {
	row := s.ordered(c)

	// The end of the buffers if each is as low as its lower bound allows.
	end := s.tops[c]
	for _, x := range row {
		end = max(end, s.least[x]) + s.buffers[x].size
	}
	if end > s.capacity {
		return false
	}
	if slack := s.capacity - end; slack != s.slack[c] {
		s.edits = append(s.edits, edit{ofSlack, c, s.slack[c]})
		s.slack[c] = slack
	}

	// The lowest buffer must start so low that all others fit above it. A buffer that cannot start so low lies
	// above a buffer that can.
	latest := s.capacity - s.rest[c]
	above := int64(placed)
	for _, x := range row {
		switch least := s.least[x]; {
		case least <= latest:
			above = min(above, least+s.buffers[x].size)
		case least < above:
			s.raise(x, above)
		default:
			return true
		}
	}
	return true
}

// ordered carries the unplaced buffers of a column and returns them in ascending order of least.
func (s *searcher) ordered(c int32) []int32 {
	row := s.rows[c]
	s.cells += int64(len(row))
	left := 0
	for k, x := range row {
		least := s.least[x]
		if least < placed {
			left++
			if least > s.low[x] {
				s.carry(x)
				least = s.least[x]
			}
		}
		for k > 0 && s.least[row[k-1]] > least {
			row[k] = row[k-1]
			k--
		}
		row[k] = x
	}
	return row[:left]
}

// carry raises a buffer that does not rest on a placed buffer to the lowest offset at which it can rest
// on an unplaced one: any layout can be pushed down until each of its buffers rests on another one or is
// at 0.
func (s *searcher) carry(x int32) {
	least := s.least[x]
	if y := s.carrier[x]; s.least[y] < least && s.least[y]+s.buffers[y].size <= least {
		return
	}
	s.cells += int64(len(s.buffers[x].near))
	top := s.capacity // if nothing fits
	for _, y := range s.buffers[x].near {
		if s.least[y] >= top {
			continue
		}
		if end := s.least[y] + s.buffers[y].size; end < top {
			top = end
			s.carrier[x] = y
			if top <= least {
				return
			}
		}
	}
	if top > least {
		s.raise(x, top)
	}
}
