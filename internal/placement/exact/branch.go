package exact

// run searches all layouts in the order of a preference, until it has visited limit cells or made all its
// turns, or idle returns true. If the outcome is solved, low is the layout.
func (s *searcher) run(t preference, limit int64, idle func() bool) outcome {
	s.reset()
	s.preference, s.limit, s.idle = t, limit, idle
	t.values(s.field, s.worth)
	if !s.propagateBounds() {
		return impossible
	}
	return s.parts(0, int32(len(s.tops)))
}

// parts places the unplaced buffers within a range of columns, one connected part at a time, because
// parts that share no column are independent. If one part cannot be placed, the others do not matter.
func (s *searcher) parts(lower, upper int32) outcome {
	for lower < upper {
		if s.rest[lower] == 0 {
			lower++
			continue
		}
		end := lower + 1
		for s.crossed[end-1] > 0 {
			end++
		}
		if o := s.part(lower, end); o != solved {
			return o
		}
		lower = end
	}
	return solved
}

// part places the unplaced buffers of a connected part. It chooses a buffer that can rest on placed
// buffers, below all unplaced ones, and tries two branches: placing it there, and not placing it there.
// An impossible choice is undone and remembered.
func (s *searcher) part(lower, upper int32) outcome {
	before, left := len(s.edits), s.dead.left(lower, upper)
	for {
		if s.cells >= s.limit || s.turns <= 0 || s.idle() {
			return gaveUp
		}
		now := s.dead.left(lower, upper)
		if known := s.dead.of(now); known.hash == now {
			s.failed = known.failed
			break
		}
		x := s.bottom(s.choose(lower, upper))
		here := len(s.edits)
		s.place(x)
		if s.propagateBounds() {
			if o := s.parts(lower, upper); o != impossible {
				return o
			}
		}
		s.rewind(here)
		if s.raise(x, s.low[x]+1); !s.propagateBounds() {
			break
		}
	}
	s.rewind(before)
	*s.dead.of(left) = part{left, s.failed}
	return impossible
}

// bottom descends from a buffer to one below which no other can be placed. If that one could
// not rest on placed buffers, propagateBounds would have raised it.
func (s *searcher) bottom(x int32) int32 {
	for {
		s.cells += int64(len(s.buffers[x].near))
		below, end := x, s.least[x]
		for _, y := range s.buffers[x].near {
			if s.least[y] >= end {
				continue
			}
			if top := s.least[y] + s.buffers[y].size; top < end || top == end && below == x {
				below, end = y, top
			}
		}
		if below == x {
			return x
		}
		x = below
	}
}
