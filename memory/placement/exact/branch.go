package exact

// run searches all layouts in the order of a preference, until it has looked at so many
// cells, or idle tells it to stop. If the outcome is solved, low is the layout.
func (s *searcher) run(t preference, limit int64, idle func() bool) outcome {
	s.reset()
	s.preference, s.limit, s.idle = t, limit, idle
	t.values(s.field, s.worth)
	if !s.settle() {
		return impossible
	}
	return s.parts(0, int32(len(s.tops)))
}

// parts places what is left within some columns, part by part: what shares no column
// has nothing to do with each other. If one part cannot be placed, the others do not
// matter.
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

// part places what is left within some columns and hangs together. It takes a buffer
// that can lie on what is placed, below all that is not: either it lies there, or it
// does not. An impossible choice is taken back, and remembered.
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
		if s.settle() {
			if o := s.parts(lower, upper); o != impossible {
				return o
			}
		}
		s.rewind(here)
		if s.raise(x, s.low[x]+1); !s.settle() {
			break
		}
	}
	s.rewind(before)
	*s.dead.of(left) = part{left, s.failed}
	return impossible
}

// bottom goes down from a buffer to one that nothing can come to lie below. If that
// one could not lie on what is placed, settle would have raised it.
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
