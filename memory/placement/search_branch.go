package placement

// run searches all layouts in the way of a taste, until it has visited so many nodes or
// idle says so. Where the outcome is solved, low is the layout.
func (s *searcher) run(t taste, limit int64, idle func() bool) outcome {
	s.rewind(0)
	s.taste, s.nodes, s.limit, s.idle = t, 0, limit, idle
	t.worth(s.field, s.worth)
	for c := range s.tops {
		s.dirty[c/64] |= 1 << (c % 64)
	}
	if !s.settle() {
		return impossible
	}
	return s.parts(0, int32(len(s.tops)))
}

// parts places what is left within some columns. What shares no column has nothing to
// do with each other: part by part is placed, and where one cannot be, the others do
// not matter.
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

// part places what is left within some columns, which hangs together. It takes a buffer
// that can lie on what is placed, and of which nothing can come to lie below it any
// more: either it lies there, or it does not. What is impossible is taken back.
func (s *searcher) part(lower, upper int32) outcome {
	before := len(s.edits)
	for {
		if s.nodes >= s.limit || s.nodes%256 == 255 && s.idle() {
			return gaveUp
		}
		x := s.lowest(s.choose(lower, upper))
		here := len(s.edits)
		s.place(x)
		if s.settle() {
			if o := s.parts(lower, upper); o != impossible {
				return o
			}
		}
		s.rewind(here)
		s.raise(x, s.low[x]+1)
		if !s.settle() {
			s.rewind(before)
			return impossible
		}
	}
}

// lowest goes down from a buffer to one that nothing can come to lie below.
func (s *searcher) lowest(x int32) int32 {
	for {
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
