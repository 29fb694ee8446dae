package placement

import "math/bits"

// settle raises the least offsets of what is not placed as far as they follow from each
// other. It reports false where no layout can follow.
func (s *searcher) settle() bool {
	for again := true; again; {
		again = false
		for w := range s.dirty {
			for s.dirty[w] != 0 {
				c := w*64 + bits.TrailingZeros64(s.dirty[w])
				s.dirty[w] &= s.dirty[w] - 1
				if s.rest[c] > 0 && !s.fill(int32(c)) {
					return false
				}
				again = true
			}
		}
	}
	return true
}

// fill looks at what is not placed of a column: it has to fit between the top and the
// capacity.
func (s *searcher) fill(c int32) bool {
	row := s.inOrder(c)

	// As low as the least offsets let them, the buffers end there.
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

	// Only those that can begin here can be the lowest. All others are above one of them.
	latest := s.capacity - s.rest[c]
	above := int64(placed)
	for _, x := range row {
		if s.least[x] <= latest {
			above = min(above, s.least[x]+s.buffers[x].size)
		} else if s.least[x] < above {
			s.raise(x, above)
		} else {
			break
		}
	}
	return true
}

// inOrder returns those of a column that are not placed, in order of least.
func (s *searcher) inOrder(c int32) []int32 {
	row := s.rows[c]
	unplaced := 0
	for k, x := range row {
		least := s.least[x]
		if least < placed {
			unplaced++
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
	return row[:unplaced]
}

// carry looks for what carries a buffer that does not lie on what is placed. It lies on
// another one then that is not placed: any layout can be pushed down until each buffer
// lies on something.
func (s *searcher) carry(x int32) {
	least := s.least[x]
	if y := s.carrier[x]; s.least[y] < least && s.least[y]+s.buffers[y].size <= least {
		return
	}
	least = s.capacity // where nothing fits
	for _, y := range s.buffers[x].near {
		if s.least[y] >= least {
			continue
		}
		if end := s.least[y] + s.buffers[y].size; end < least {
			least = end
			s.carrier[x] = y
			if least <= s.least[x] {
				return
			}
		}
	}
	if least > s.least[x] {
		s.raise(x, least)
	}
}
