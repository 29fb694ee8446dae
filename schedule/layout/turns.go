package layout

import (
	"cmp"
	"slices"
)

// Buffers of one size that are born again in each period can take turns at a place: one
// follows another where that has died, and after some periods the first one is back. In
// each period such a chain begins anew, so that it needs as many places as it has periods.
// The shorter the time that is lost between death and birth, the fewer places there are.

// chain is buffers that take turns at places, as many as periods go by until the first one
// is there again.
type chain struct {
	turns  []turn
	places int
}

// turn is a buffer of a chain, and in which period of the chain it is born.
type turn struct {
	buffer int32
	period int
}

// shelf gives buffers of one size, in order of birth, to chains whose lengths divide a
// cycle.
func (s *steady) shelf(own []int32, cycle int) (chains []chain) {
	longest := slices.Clone(own)
	slices.SortStableFunc(longest, func(a, b int32) int { return cmp.Compare(s.life(b), s.life(a)) })
	in := make([]int32, len(s.Buffers)) // the last chain that a buffer was tried for, from 1; -1 where it is in one
	for n, first := range longest {
		if in[first] < 0 {
			continue
		}
		c := s.fullest(s.follow(first, own, in, int32(n+1), cycle), cycle)
		chains = append(chains, c)
		for _, t := range c.turns {
			in[t.buffer] = -1
		}
	}
	return chains
}

// follow returns a buffer and, one after the other, what is born next after the death of
// the one before and dies before the first one comes back.
func (s *steady) follow(first int32, own []int32, in []int32, n int32, cycle int) []turn {
	turns := []turn{{first, 0}}
	in[first] = n
	end := s.Buffers[first].Lower + int64(cycle)*s.Period
	for now := s.Buffers[first].Upper; now < end; {
		period := now / s.Period
		k, _ := slices.BinarySearchFunc(own, now%s.Period, func(i int32, t int64) int { return cmp.Compare(s.Buffers[i].Lower, t) })
		for now < end {
			if k == len(own) {
				k, period = 0, period+1
			}
			b := &s.Buffers[own[k]]
			if b.Lower+period*s.Period >= end {
				return turns
			}
			if death := b.Upper + period*s.Period; death <= end && in[own[k]] >= 0 && in[own[k]] != n {
				turns, now = append(turns, turn{own[k], int(period)}), death
				in[own[k]] = n
				break
			}
			k++
		}
	}
	return turns
}

// fullest returns the beginning of a chain that loses the least time until it comes back,
// after a number of periods that divides the cycle.
func (s *steady) fullest(turns []turn, cycle int) (best chain) {
	first, used, most := s.Buffers[turns[0].buffer].Lower, int64(0), 0.0
	for k, t := range turns {
		used += s.life(t.buffer)
		death := s.Buffers[t.buffer].Upper + int64(t.period)*s.Period
		places := int((death - first + s.Period - 1) / s.Period)
		for cycle%places != 0 {
			places++
		}
		if share := float64(used) / float64(places); share > most {
			best, most = chain{turns[:k+1], places}, share
		}
	}
	return best
}

func (s *steady) life(buffer int32) int64 { return s.Buffers[buffer].Upper - s.Buffers[buffer].Lower }
