package layout

import (
	"cmp"
	"slices"
)

// Buffers of one size that are born again in each repeat can take turns at a place: one
// follows another where that has died, and after some repeats the first one is back. In
// each repeat such a chain begins anew, so that it needs as many places as it has repeats.
// The shorter the time that is lost between death and birth, the fewer places there are.
// So the steady state of a large program is laid out without a search: its cycle is the
// shortest one for which the chains lose little, and every place of a chain is one buffer.

const (
	// longestCycle is the most repeats of a cycle that is tried beyond the longest life, and
	// mostTurns how many births there are in it at most where a shorter one does.
	longestCycle = 256
	mostTurns    = 50_000
	// littleLost is the part of what is alive that chains may lose by which their cycle is
	// good enough.
	littleLost = 256
)

// turns says how the births of a segment take turns: after so many repeats all of them are
// back at their places. Allocation b of repeat k lies at place at[k*births+b], -1 where it has
// a place of its own.
type turns struct {
	cycle int
	at    []int32
	count int32 // places
}

// turns returns the turns of each segment that goes on, for the nth good cycle. Nil is where
// there is none.
func (p *player) turns(nth int) map[int]*turns {
	bySegment := map[int]*turns{}
	for s, span := range p.spans {
		if span.skipped == 0 {
			continue
		}
		if round := p.steady(s); round != nil {
			bySegment[s] = round.turns((p.program[s].Repeat-span.lead-span.tail)/2, p.most(), nth)
		}
		if bySegment[s] == nil {
			return nil
		}
	}
	return bySegment
}

// turns returns the nth of the cycles, the shortest first, of some repeats at most, for which
// the chains lose little; in place of the first one that for which they lose least, where
// none does. Nil is where there are too few repeats.
func (s *steady) turns(repeats int, alive int64, nth int) *turns {
	longest := s.longest()
	var best map[int64][]chain
	var cycle int
	var least int64
	for c := longest; c <= min(max(longestCycle, longest), repeats); c++ {
		if best != nil && c*len(s.births) > mostTurns {
			break
		}
		if best != nil && least <= alive+alive/littleLost {
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
	t := &turns{cycle: cycle, at: slices.Repeat([]int32{-1}, cycle*len(s.births))}
	for _, chains := range best {
		for _, c := range chains {
			for _, turn := range c.turns {
				for k := range cycle { // the chain began in repeat k-turn.repeat
					place := ((k-turn.repeat)%c.places + c.places) % c.places
					t.at[k*len(s.births)+int(turn.birth)] = t.count + int32(place)
				}
			}
			t.count += int32(c.places)
		}
	}
	return t
}

// chain is births that take turns at places, as many as repeats go by until the first one
// is there again.
type chain struct {
	turns  []turn
	places int
}

// turn is a birth of a chain, and in which repeat of the chain it is.
type turn struct {
	birth  int32
	repeat int
}

// chains gives births of one size, in order, to chains whose lengths divide a cycle.
func (s *steady) chains(own []int32, cycle int) (list []chain) {
	longest := make([]int32, len(own)) // places in own
	for k := range longest {
		longest[k] = int32(k)
	}
	slices.SortStableFunc(longest, func(a, b int32) int { return cmp.Compare(s.births[own[b]].length(), s.births[own[a]].length()) })
	f := &following{steady: s, own: own, tried: make([]int32, len(own)), left: make([]int32, len(own)+1)}
	for k := range f.left {
		f.left[k] = int32(k)
	}
	for _, first := range longest {
		if f.next(first) != first {
			continue
		}
		c := s.fullest(f.from(first, cycle), cycle)
		list = append(list, c)
		for _, k := range f.chain[:len(c.turns)] {
			f.left[k] = k + 1
		}
	}
	return list
}

// following is buffers of one size, in order of birth, on the way into chains.
type following struct {
	*steady
	own   []int32
	tried []int32 // by buffer, the last chain that it was tried for, from 1
	left  []int32 // by buffer, itself where it is in no chain, else one behind it
	chain []int32 // those of the chain that was tried last
	tries int32
}

// next returns the first buffer from one on that is in no chain.
func (f *following) next(k int32) int32 {
	for f.left[k] != k {
		f.left[k] = f.left[f.left[k]]
		k = f.left[k]
	}
	return k
}

// from returns a buffer and, one after the other, what is born next after the death of the
// one before and dies before the first one comes back.
func (f *following) from(first int32, cycle int) []turn {
	f.tries++
	f.chain, f.tried[first] = append(f.chain[:0], first), f.tries
	turns := []turn{{f.own[first], 0}}
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
				return turns
			}
			if death := b.upper + repeat*f.period; death <= end && f.tried[k] != f.tries {
				turns, now = append(turns, turn{f.own[k], int(repeat)}), death
				f.chain, f.tried[k] = append(f.chain, k), f.tries
				break
			}
		}
	}
	return turns
}

// fullest returns the beginning of a chain that loses the least time until it comes back,
// after a number of periods that divides the cycle.
func (s *steady) fullest(turns []turn, cycle int) (best chain) {
	first, used, most := s.births[turns[0].birth].lower, int64(0), 0.0
	for k, t := range turns {
		used += s.births[t.birth].length()
		death := s.births[t.birth].upper + int64(t.repeat)*s.period
		places := int((death - first + s.period - 1) / s.period)
		for cycle%places != 0 {
			places++
		}
		if share := float64(used) / float64(places); share > most {
			best, most = chain{turns[:k+1], places}, share
		}
	}
	return best
}
