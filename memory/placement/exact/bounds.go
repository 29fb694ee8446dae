package exact

import "math/bits"

// settle raises the least offsets of what is not placed as far as they follow from each
// other. It reports false where no layout can follow.
func (s *searcher) settle() bool {
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

// fits reports whether what is left of a column fits between its top and the capacity,
// and raises what follows from that.
func (s *searcher) fits(c int32) bool {
	row := s.ordered(c)

	// As low as their least offsets let them, the buffers end there.
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

	// One of those that can begin so low that all others fit above it is the lowest. The
	// others lie above one of them.
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

// ordered returns those of a column that are not placed, in order of least.
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

// carry raises a buffer that does not lie on what is placed, to where another one that
// is not placed can carry it: any layout can be pushed down until each of its buffers
// lies on another one or at 0.
func (s *searcher) carry(x int32) {
	least := s.least[x]
	if y := s.carrier[x]; s.least[y] < least && s.least[y]+s.buffers[y].size <= least {
		return
	}
	s.cells += int64(len(s.buffers[x].near))
	top := s.capacity // where nothing fits
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
