package layout

import (
	"cmp"
	"slices"
)

// Buffers of one size that are born in each repeat can rotate through places: each follows
// one that has died, and after some repeats the first one returns. Such a chain begins anew
// in each repeat, so it needs as many places as it spans repeats. The less time is lost
// between deaths and births, the fewer places there are. So the steady state needs no
// search: its cycle is the shortest one whose chains lose little, and every place of a chain
// is one buffer.

const (
	// longestCycle is the length of the longest cycle to try if the longest life is shorter.
	// maxRotated limits the births of a cycle once a shorter cycle has a rotation.
	longestCycle = 256
	maxRotated   = 50_000
	// slackDivisor: the chains of a good cycle lose at most 1/slackDivisor of the live
	// bytes.
	slackDivisor = 256
)

// rotation maps the births of a segment to places: after a cycle of repeats all births are
// back at their places. Birth b of repeat k is at place at[k*births+b], or -1 if it has a
// place of its own.
type rotation struct {
	cycle int
	at    []int32
	count int32 // number of places
}

// rotations returns the nth good rotation of each segment with skipped repeats. It returns
// nil if a segment has none.
func (p *player) rotations(nth int) map[int]*rotation {
	bySegment := map[int]*rotation{}
	for s, span := range p.spans {
		if span.skipped == 0 {
			continue
		}
		if state := p.steady(s); state != nil {
			bySegment[s] = state.rotation((p.program[s].Repeat-span.lead-span.tail)/2, p.most(), nth)
		}
		if bySegment[s] == nil {
			return nil
		}
	}
	return bySegment
}

// rotation returns the rotation of the nth good cycle, the shortest first, of at most this
// number of repeats. The chains of a good cycle lose little. If there is no good cycle, the
// first rotation is the one that loses least. Nil means that there are too few repeats.
func (s *steadyState) rotation(repeats int, alive int64, nth int) *rotation {
	longest := s.longest()
	var best map[int64][]chain
	var cycle int
	var least int64
	for c := longest; c <= min(max(longestCycle, longest), repeats); c++ {
		if best != nil && c*len(s.births) > maxRotated {
			break
		}
		if best != nil && least <= alive+alive/slackDivisor {
			if nth == 0 {
				break
			}
			nth, best = nth-1, nil
		}
		chains, bytes := map[int64][]chain{}, int64(0)
		for size, own := range s.sizes {
			chains[size] = s.chains(own, c)
			for _, one := range chains[size] {
				bytes += size * int64(one.places)
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
				for k := range cycle { // the chain began in repeat k-m.repeat
					place := ((k-m.repeat)%c.places + c.places) % c.places
					t.at[k*len(s.births)+int(m.birth)] = t.count + int32(place)
				}
			}
			t.count += int32(c.places)
		}
	}
	return t
}

// chain is a sequence of births that follow one another. It needs one place for each repeat
// until its first birth returns.
type chain struct {
	members []member
	places  int
}

// member is a birth of a chain, and its repeat counted from the chain's first.
type member struct {
	birth  int32
	repeat int
}

// chains splits births of one size, in order, into chains whose lengths divide a cycle.
func (s *steadyState) chains(own []int32, cycle int) (list []chain) {
	longest := make([]int32, len(own)) // indices into own, by length of life
	for k := range longest {
		longest[k] = int32(k)
	}
	slices.SortStableFunc(longest, func(a, b int32) int { return cmp.Compare(s.births[own[b]].length(), s.births[own[a]].length()) })
	f := &chainBuilder{steadyState: s, own: own, tried: make([]int32, len(own)), left: make([]int32, len(own)+1)}
	for k := range f.left {
		f.left[k] = int32(k)
	}
	for _, first := range longest {
		if f.next(first) != first {
			continue
		}
		c := s.fullest(f.from(first, cycle), cycle)
		list = append(list, c)
		for _, k := range f.chain[:len(c.members)] {
			f.left[k] = k + 1
		}
	}
	return list
}

// chainBuilder assigns buffers of one size, in order of birth, to chains.
type chainBuilder struct {
	*steadyState
	own   []int32
	tried []int32 // by buffer, the last chain that it was tried for, counted from 1
	left  []int32 // by buffer, its own index if it is in no chain, otherwise a later index
	chain []int32 // buffers of the chain that was tried last
	tries int32
}

// next returns the first buffer at or after k that is in no chain.
func (f *chainBuilder) next(k int32) int32 {
	for f.left[k] != k {
		f.left[k] = f.left[f.left[k]]
		k = f.left[k]
	}
	return k
}

// from returns a chain: a buffer and, repeatedly, the next buffer to be born after the death
// of the previous one that dies before the first one returns.
func (f *chainBuilder) from(first int32, cycle int) []member {
	f.tries++
	f.chain, f.tried[first] = append(f.chain[:0], first), f.tries
	members := []member{{f.own[first], 0}}
	b := &f.births[f.own[first]]
	end := b.lower + int64(cycle)*f.period
	for now := b.upper; now < end; {
		repeat := now / f.period
		at, _ := slices.BinarySearchFunc(f.own, now%f.period, func(i int32, t int64) int { return cmp.Compare(f.births[i].lower, t) })
		for k := f.next(int32(at)); ; k = f.next(k + 1) {
			if int(k) == len(f.own) {
				k, repeat = f.next(0), repeat+1
			}
			b := &f.births[f.own[k]]
			if b.lower+repeat*f.period >= end {
				return members
			}
			if death := b.upper + repeat*f.period; death <= end && f.tried[k] != f.tries {
				members, now = append(members, member{f.own[k], int(repeat)}), death
				f.chain, f.tried[k] = append(f.chain, k), f.tries
				break
			}
		}
	}
	return members
}

// fullest returns the prefix of a chain that loses the least time until it returns, after a
// number of periods that divides the cycle.
func (s *steadyState) fullest(members []member, cycle int) (best chain) {
	first, used, most := s.births[members[0].birth].lower, int64(0), 0.0
	for k, t := range members {
		used += s.births[t.birth].length()
		death := s.births[t.birth].upper + int64(t.repeat)*s.period
		places := int((death - first + s.period - 1) / s.period)
		for cycle%places != 0 {
			places++
		}
		if share := float64(used) / float64(places); share > most {
			best, most = chain{members[:k+1], places}, share
		}
	}
	return best
}
