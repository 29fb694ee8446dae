package layout

import (
	"cmp"
	"slices"
)

// steadyState describes a repeat of a segment's cycle; all these repeats are equal.
type steadyState struct {
	period int64 // number of changes in a repeat
	births []lifetime
	sizes  map[int64][]int32 // by bytes: the births that outlive their action, in order
}

// lifetime is the birth and the death of an allocation, as numbers of changes since the start of the
// birth's repeat. A death in a later repeat is at or above the period.
type lifetime struct {
	lower, upper int64
	bytes        int64
}

func (l lifetime) length() int64 { return l.upper - l.lower }

// steadyState returns the steady state of a segment with a cycle, or nil if the births and the
// deaths in a repeat do not correspond one to one.
func (t *trace) steadyState(segment int) *steadyState {
	actions, places := t.cycleActions(segment), &t.segments[segment]
	first := t.births[places.First+places.Lead*places.Body:][:places.Body+1]
	begin := actions[0].start
	changes := t.log[begin:actions[places.Body].start]
	s := &steadyState{period: int64(len(changes)), sizes: map[int64][]int32{}}
	for i, change := range changes {
		if change >= 0 {
			s.births = append(s.births, lifetime{lower: int64(i), bytes: t.allocations[change].bytes})
		}
	}
	// If an allocation that was born k repeats earlier dies in this repeat, the same birth of this
	// repeat dies k repeats later.
	for i, change := range changes {
		if change >= 0 {
			continue
		}
		it := &t.allocations[^change]
		at := it.position
		if int(at.segment) != segment || first[at.index]+it.ordinal >= first[at.index+1] {
			return nil
		}
		s.births[first[at.index]-first[0]+it.ordinal].upper = int64(places.Lead-int(at.repeat))*s.period + int64(i)
	}
	action := 0
	for i, b := range s.births {
		if b.upper <= b.lower {
			return nil
		}
		for int64(actions[action+1].start-begin) <= b.lower {
			action++
		}
		if b.upper >= int64(actions[action+1].start-begin) {
			s.sizes[b.bytes] = append(s.sizes[b.bytes], int32(i))
		}
	}
	return s
}

// longest returns the longest life, in repeats, rounded up.
func (s *steadyState) longest() int {
	longest := slices.MaxFunc(s.births, func(a, b lifetime) int { return cmp.Compare(a.length(), b.length()) })
	return int((longest.length() + s.period - 1) / s.period)
}

// A rotation assigns the births of a steady state to locations, without a search. Births of one size
// form chains. Each birth of a chain follows the death of the previous one, in the same repeat or in a
// later one. Every repeat starts a run of the chain. Let q be the number of repeats that a run takes,
// rounded up to a divisor of the cycle. Then a run has ended by the time the q-th run after it starts, so
// the chain has q locations, and the run that starts in repeat k uses location k mod q. As q divides the
// cycle, each birth has the same location again one cycle later, so each location is one buffer of the
// placement problem.
//
// The chains are built greedily, and different sizes never share a location, so there may be more
// locations than necessary. A rotation proves nothing: the layout is known to be optimal only if its
// height is the lower bound.
type rotation struct {
	cycle     int
	locations []int32 // of each birth of the first repeat of a cycle, then of the second one, and so on
}

const (
	// longestCycle is the longest cycle to try, in repeats, unless the longest life is longer.
	longestCycle = 256
	// maxRotated is the largest number of births in a cycle to try, unless no shorter cycle was tried.
	maxRotated = 50_000
	// slackDivisor: a cycle is good if its locations need at most 1/slackDivisor more bytes than are live
	// at the peak.
	slackDivisor = 256
)

// rotationsOf returns the nth rotation of each segment with a cycle that allocates, or nil if a segment
// with a cycle has no steady state or no nth rotation.
func (t *trace) rotationsOf(nth int) map[int]*rotation {
	bySegment := map[int]*rotation{}
	for s, places := range t.segments {
		if places.Cycle == 0 {
			continue
		}
		state := t.steadyState(s)
		if state == nil {
			return nil
		}
		if len(state.births) == 0 {
			continue
		}
		limit := (places.Repeat - places.Lead - places.Tail) / 2
		if bySegment[s] = state.rotation(limit, t.peaks().bytes, nth); bySegment[s] == nil {
			return nil
		}
	}
	return bySegment
}

// rotation returns the rotation of the nth good cycle of at most this number of repeats, counted from 0
// for the shortest. A cycle is at least as long as the longest life. If there are exactly nth good
// cycles, rotation chooses, among the cycles longer than the last good one, the one whose locations need
// the fewest bytes. It returns nil if there is no nth rotation.
func (s *steadyState) rotation(repeats int, peak int64, nth int) *rotation {
	var best []chain // nil after each good cycle that is passed over
	var cycle int    // of best
	var least int64  // bytes of the locations of best
	longest := s.longest()
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
		chains, bytes := []chain{}, int64(0)
		for size, candidates := range s.sizes {
			for _, chain := range s.chains(candidates, c) {
				chains = append(chains, chain)
				bytes += size * int64(chain.locations)
			}
		}
		if best == nil || bytes < least {
			best, cycle, least = chains, c, bytes
		}
	}
	if best == nil || nth > 0 {
		return nil
	}
	r := &rotation{cycle: cycle, locations: slices.Repeat([]int32{-1}, cycle*len(s.births))}
	count := 0
	for _, chain := range best {
		for _, m := range chain.members {
			for k := range cycle { // the run with this birth began in repeat k-m.repeat
				phase := ((k-m.repeat)%chain.locations + chain.locations) % chain.locations
				r.locations[k*len(s.births)+int(m.birth)] = int32(count + phase)
			}
		}
		count += chain.locations
	}
	for i, location := range r.locations {
		if location < 0 { // dies within its action, so it belongs to no chain
			r.locations[i] = int32(count)
			count++
		}
	}
	return r
}

// chain is a sequence of births of one size whose runs share some locations.
type chain struct {
	members   []member
	locations int
}

// member is a birth of a chain.
type member struct {
	birth  int32 // index into steadyState.births
	repeat int   // counted from the repeat in which the run starts
}

// chains divides the candidates, births of one size in order, into chains whose numbers of locations
// divide the cycle. Each chain starts with the birth that has the longest life of those not yet in a
// chain.
func (s *steadyState) chains(candidates []int32, cycle int) (list []chain) {
	byLength := make([]int32, len(candidates)) // indices into candidates, the longest life first
	for k := range byLength {
		byLength[k] = int32(k)
	}
	slices.SortStableFunc(byLength, func(a, b int32) int {
		return cmp.Compare(s.births[candidates[b]].length(), s.births[candidates[a]].length())
	})
	b := &chainBuilder{steadyState: s, candidates: candidates, tried: make([]int32, len(candidates)), free: make([]int32, len(candidates)+1)}
	for k := range b.free {
		b.free[k] = int32(k)
	}
	for _, first := range byLength {
		if b.next(first) != first {
			continue
		}
		c := s.bestPrefix(b.grow(first, cycle), cycle)
		list = append(list, c)
		for _, k := range b.chain[:len(c.members)] {
			b.free[k] = k + 1
		}
	}
	return list
}

// chainBuilder assigns the candidates, births of one size in order, to chains.
type chainBuilder struct {
	*steadyState
	candidates []int32
	tried      []int32 // by candidate: the last chain for which it was tried, counted from 1
	free       []int32 // by candidate, its own index if it is in no chain, otherwise a later index (see next)
	chain      []int32 // candidates in the chain that was tried last
	tries      int32
}

// next returns the first candidate at or after k that is in no chain. It works like the find of a
// union-find structure.
func (b *chainBuilder) next(k int32) int32 {
	for b.free[k] != k {
		b.free[k] = b.free[b.free[k]]
		k = b.free[k]
	}
	return k
}

// grow returns the members of a run. After the first candidate it adds, repeatedly, the earliest
// suitable birth at or after the death of the last member. A birth is suitable if it is in no chain
// and dies before the first member is born again, one cycle later, or at that time.
func (b *chainBuilder) grow(first int32, cycle int) []member {
	b.tries++
	b.chain, b.tried[first] = append(b.chain[:0], first), b.tries
	members := []member{{b.candidates[first], 0}}
	birth := &b.births[b.candidates[first]]
	end := birth.lower + int64(cycle)*b.period
	for now := birth.upper; now < end; {
		repeat := now / b.period
		at, _ := slices.BinarySearchFunc(b.candidates, now%b.period, func(i int32, t int64) int { return cmp.Compare(b.births[i].lower, t) })
		for k := b.next(int32(at)); ; k = b.next(k + 1) {
			if int(k) == len(b.candidates) {
				k, repeat = b.next(0), repeat+1
			}
			birth := &b.births[b.candidates[k]]
			if birth.lower+repeat*b.period >= end {
				return members
			}
			if death := birth.upper + repeat*b.period; death <= end && b.tried[k] != b.tries {
				members, now = append(members, member{b.candidates[k], int(repeat)}), death
				b.chain, b.tried[k] = append(b.chain, k), b.tries
				break
			}
		}
	}
	return members
}

// bestPrefix returns a chain that consists of the first members of a run. It chooses their number so
// that the locations of the chain are in use for the largest share of the time.
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
