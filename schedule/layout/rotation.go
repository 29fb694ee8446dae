package layout

import (
	"cmp"
	"slices"
)

// A rotation lays out the steady state without a search. It links births of one size into chains.
// Each birth of a chain follows the death of the one before it, in the same repeat or a later one.
// Every repeat starts a new run of the chain. A run that takes q periods, rounded up to a divisor
// of the cycle, overlaps q-1 later runs, so the chain has q locations, and the run that starts in
// repeat k uses location k mod q. After a cycle every birth is back at its location, so each
// location is one buffer of the placement problem.
//
// The chains are built greedily, and different sizes never share a location, so there may be more
// locations than necessary. A rotation alone proves nothing: the layout is known to be optimal only
// if its height is the lower bound.

const (
	// longestCycle is the length, in repeats, of the longest cycle to try, unless the longest
	// life is longer. maxRotated limits the births of a cycle, unless no
	// rotation has been found yet.
	longestCycle = 256
	maxRotated   = 50_000
	// slackDivisor: a cycle is good if the bytes of its locations exceed the peak of live bytes
	// by at most 1/slackDivisor of it.
	slackDivisor = 256
)

// rotation maps the births of a segment to locations, the same ones after a cycle of repeats.
// Birth b of repeat k is at location at[k*births+b]. That is -1 for a birth that dies within its
// action, which is in no chain.
type rotation struct {
	cycle int
	at    []int32
	count int32 // number of locations
}

// rotations returns the nth good rotation of each segment with skipped repeats. It returns
// nil if a segment has none.
func (p *player) rotations(nth int) map[int]*rotation {
	bySegment := map[int]*rotation{}
	for s, span := range p.spans {
		if span.skipped == 0 {
			continue
		}
		state := p.steady(s)
		if state == nil {
			return nil
		}
		if len(state.births) == 0 {
			continue
		}
		if bySegment[s] = state.rotation((p.program[s].Repeat-span.lead-span.tail)/2, p.peakBytes(), nth); bySegment[s] == nil {
			return nil
		}
	}
	return bySegment
}

// rotation returns the rotation of the nth good cycle, the shortest first, of at most this
// number of repeats. A cycle is at least as long as the longest life. The good cycles are
// followed by one more: the longer cycle whose locations have the fewest bytes. Nil means that
// there is no nth rotation.
func (s *steadyState) rotation(repeats int, peak int64, nth int) *rotation {
	longest := s.longest()
	var best map[int64][]chain
	var cycle int
	var least int64
	for c := longest; c <= min(max(longestCycle, longest), repeats); c++ {
		if best != nil && c*len(s.births) > maxRotated {
			break
		}
		if best != nil && least <= peak+peak/slackDivisor {
			if nth == 0 {
				break
			}
			nth, best = nth-1, nil
		}
		chains, bytes := map[int64][]chain{}, int64(0)
		for size, candidates := range s.sizes {
			chains[size] = s.chains(candidates, c)
			for _, one := range chains[size] {
				bytes += size * int64(one.locations)
			}
		}
		if best == nil || bytes < least {
			best, cycle, least = chains, c, bytes
		}
	}
	if best == nil || nth > 0 {
		return nil
	}
	t := &rotation{cycle: cycle, at: slices.Repeat([]int32{-1}, cycle*len(s.births))}
	for _, chains := range best {
		for _, c := range chains {
			for _, m := range c.members {
				for k := range cycle { // the run began in repeat k-m.repeat
					location := ((k-m.repeat)%c.locations + c.locations) % c.locations
					t.at[k*len(s.births)+int(m.birth)] = t.count + int32(location)
				}
			}
			t.count += int32(c.locations)
		}
	}
	return t
}

// chain is a sequence of births of one size that follow one another. Its runs share the
// locations.
type chain struct {
	members   []member
	locations int
}

// member is a birth of a chain, and the number of repeats from the start of the run to it.
type member struct {
	birth  int32
	repeat int
}

// chains splits births of one size, in order, into chains whose numbers of locations divide the
// cycle. It starts each chain with the longest life that is in none yet.
func (s *steadyState) chains(candidates []int32, cycle int) (list []chain) {
	longest := make([]int32, len(candidates)) // indices into candidates, by length of life
	for k := range longest {
		longest[k] = int32(k)
	}
	slices.SortStableFunc(longest, func(a, b int32) int {
		return cmp.Compare(s.births[candidates[b]].length(), s.births[candidates[a]].length())
	})
	f := &chainBuilder{steadyState: s, candidates: candidates, tried: make([]int32, len(candidates)), free: make([]int32, len(candidates)+1)}
	for k := range f.free {
		f.free[k] = int32(k)
	}
	for _, first := range longest {
		if f.next(first) != first {
			continue
		}
		c := s.bestPrefix(f.grow(first, cycle), cycle)
		list = append(list, c)
		for _, k := range f.chain[:len(c.members)] {
			f.free[k] = k + 1
		}
	}
	return list
}

// chainBuilder assigns the candidates, births of one size in order, to chains.
type chainBuilder struct {
	*steadyState
	candidates []int32
	tried      []int32 // by candidate, the last chain that it was tried for, counted from 1
	free       []int32 // by candidate, its own index if it is in no chain, otherwise a later index
	chain      []int32 // candidates in the chain that was tried last
	tries      int32
}

// next returns the first candidate at or after k that is in no chain.
func (f *chainBuilder) next(k int32) int32 {
	for f.free[k] != k {
		f.free[k] = f.free[f.free[k]]
		k = f.free[k]
	}
	return k
}

// grow returns the members of a run. After the first candidate it adds, repeatedly, the earliest
// birth at or after the death of the last member that is in no chain and dies before the first
// member is born again, one cycle later.
func (f *chainBuilder) grow(first int32, cycle int) []member {
	f.tries++
	f.chain, f.tried[first] = append(f.chain[:0], first), f.tries
	members := []member{{f.candidates[first], 0}}
	b := &f.births[f.candidates[first]]
	end := b.lower + int64(cycle)*f.period
	for now := b.upper; now < end; {
		repeat := now / f.period
		at, _ := slices.BinarySearchFunc(f.candidates, now%f.period, func(i int32, t int64) int { return cmp.Compare(f.births[i].lower, t) })
		for k := f.next(int32(at)); ; k = f.next(k + 1) {
			if int(k) == len(f.candidates) {
				k, repeat = f.next(0), repeat+1
			}
			b := &f.births[f.candidates[k]]
			if b.lower+repeat*f.period >= end {
				return members
			}
			if death := b.upper + repeat*f.period; death <= end && f.tried[k] != f.tries {
				members, now = append(members, member{f.candidates[k], int(repeat)}), death
				f.chain, f.tried[k] = append(f.chain, k), f.tries
				break
			}
		}
	}
	return members
}

// bestPrefix returns the chain that consists of the first members of a run. It chooses their number
// so that they use the largest share of the time of the chain's locations.
func (s *steadyState) bestPrefix(members []member, cycle int) (best chain) {
	first, used, most := s.births[members[0].birth].lower, int64(0), 0.0
	for k, t := range members {
		used += s.births[t.birth].length()
		death := s.births[t.birth].upper + int64(t.repeat)*s.period
		locations := int((death - first + s.period - 1) / s.period)
		for cycle%locations != 0 {
			locations++
		}
		if share := float64(used) / float64(locations); share > most {
			best, most = chain{members[:k+1], locations}, share
		}
	}
	return best
}
