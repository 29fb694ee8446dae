package choose

// lowerBound returns a lower bound, by the given clock, on the time of every order of this many
// microbatches. A rank starts when the first microbatch reaches its first block, and then has to do all
// its work. The last of its F and I tasks is on that block; afterwards the gradient returns to the
// model's first block, whose W follows.
func (s *jobShop) lowerBound(microbatches int, clock Clock) (bound int64) {
	n := int64(microbatches)
	seen := make([]bool, s.ranks)
	var forwardPath, backwardPath int64 // from the first block to block b, and back
	for b, block := range s.blocks {
		if b > 0 {
			f, i := taskOf(b-1, forward), taskOf(b, backward)
			forwardPath += s.duration[f] + s.lag[f]
			backwardPath += s.lag[i] + s.duration[i-parts]
		}
		if seen[block.rank] {
			continue
		}
		seen[block.rank] = true
		work, first := s.work(block.rank), forwardPath
		if clock == Span {
			first = 0 // a rank's span begins with its first task
		}
		var weightWork int64 // all of it may run after the last I
		if s.split {
			for _, other := range s.blocksOn[block.rank] {
				weightWork += s.duration[taskOf(other, weight)]
			}
		}
		last := forwardPath + n*(work-weightWork) + backwardPath
		if s.split {
			last += s.duration[weight]
		}
		bound = max(bound, first+n*work, last)
	}
	return bound
}
