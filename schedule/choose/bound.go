package choose

// least returns a lower bound of the time of any order of this many microbatches by this clock. A
// rank begins when the first microbatch has come to it, and then has all its work to do. After all
// its forwards and I, the last of which is on its first block, the gradient has to go back to the
// first block of the model, and W follows.
func (s *shop) least(microbatches int, by Clock) (most int64) {
	n := int64(microbatches)
	seen := make([]bool, s.ranks)
	var there, back int64 // the ways to a block and back from it
	for b, own := range s.blocks {
		if b > 0 {
			f, i := taskOf(b-1, forward), taskOf(b, backward)
			there += s.time[f] + s.lag[f]
			back += s.lag[i] + s.time[i-parts]
		}
		if seen[own.rank] {
			continue
		}
		seen[own.rank] = true
		busy, begins := s.busy(own.rank), there
		if by == Span {
			begins = 0 // its span begins with its first task
		}
		var later int64
		if s.split {
			for _, other := range s.on[own.rank] {
				later += s.time[taskOf(other, weight)]
			}
		}
		last := there + n*(busy-later) + back
		if s.split {
			last += s.time[weight]
		}
		most = max(most, begins+n*busy, last)
	}
	return most
}
