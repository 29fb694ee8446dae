package layout

import (
	"cmp"
	"slices"
)

// Buffers of one size that are born again in each repeat can rotate through places: one
// follows another that has died, and after some repeats the first one is back. In each repeat
// such a chain begins anew, so that it needs as many places as it has repeats. The shorter the
// time that is lost between death and birth, the fewer places there are. So the steady state is
// laid out without a search: its cycle is the shortest one for which the chains lose little, and
// every place of a chain is one buffer.

const (
	// longestCycle is the most repeats of a cycle that is tried beyond the longest life, and
	// maxRotated the most births in it if a shorter cycle has a rotation.
	longestCycle = 256
	maxRotated   = 50_000
	// slackDivisor is the bytes that are alive, divided by what the chains of a good cycle may
	// lose.
	slackDivisor = 256
)

// rotation says how the births of a segment rotate: after a cycle of repeats all of them are
// back at their places. Birth b of repeat k lies at place at[k*births+b], -1 if it has a place
// of its own.
type rotation struct {
	cycle int
	at    []int32
	count int32 // places
}

// rotations returns the nth good rotation of each segment that has repeats skipped. Nil means
// that one of them has none.
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

// rotation returns that of the nth cycle, the shortest first, of some repeats at most, for which
// the chains lose little. If there is none, the first is that for which they lose least. Nil
// means that there are too few repeats.
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

// chain is births that follow one another at places, as many as repeats go by until the first
// one is there again.
type chain struct {
	members []member
	places  int
}

// member is a birth of a chain, and in which repeat of the chain it is.
type member struct {
	birth  int32
	repeat int
}

// chains gives births of one size, in order, to chains whose lengths divide a cycle.
func (s *steadyState) chains(own []int32, cycle int) (list []chain) {
	longest := make([]int32, len(own)) // places in own
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

// chainBuilder is buffers of one size, in order of birth, on the way into chains.
type chainBuilder struct {
	*steadyState
	own   []int32
	tried []int32 // by buffer, the last chain that it was tried for, from 1
	left  []int32 // by buffer, itself where it is in no chain, else one behind it
	chain []int32 // those of the chain that was tried last
	tries int32
}

// next returns the first buffer from one on that is in no chain.
func (f *chainBuilder) next(k int32) int32 {
	for f.left[k] != k {
		f.left[k] = f.left[f.left[k]]
		k = f.left[k]
	}
	return k
}

// from returns a buffer and, one after the other, what is born next after the death of the
// one before and dies before the first one comes back.
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

// fullest returns the beginning of a chain that loses the least time until it comes back,
// after a number of periods that divides the cycle.
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
