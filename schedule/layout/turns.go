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

// count returns how many places chains have.
func count(chains []chain) (places int) {
	for _, c := range chains {
		places += c.places
	}
	return places
}

// pool gives buffers of one size, in order of birth, to chains whose lengths divide a
// cycle.
func (s *steady) pool(own []int32, cycle int) (chains []chain) {
	longest := make([]int32, len(own)) // places in own
	for k := range longest {
		longest[k] = int32(k)
	}
	slices.SortStableFunc(longest, func(a, b int32) int { return cmp.Compare(s.life(own[b]), s.life(own[a])) })
	f := &following{steady: s, own: own, tried: make([]int32, len(own)), left: make([]int32, len(own)+1)}
	for k := range f.left {
		f.left[k] = int32(k)
	}
	for _, first := range longest {
		if f.next(first) != first {
			continue
		}
		c := s.fullest(f.from(first, cycle), cycle)
		chains = append(chains, c)
		for _, k := range f.chain[:len(c.turns)] {
			f.left[k] = k + 1
		}
	}
	return chains
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
	b := &f.Buffers[f.own[first]]
	end := b.Lower + int64(cycle)*f.Period
	for now := b.Upper; now < end; {
		period := now / f.Period
		at, _ := slices.BinarySearchFunc(f.own, now%f.Period, func(i int32, t int64) int { return cmp.Compare(f.Buffers[i].Lower, t) })
		for k := f.next(int32(at)); ; k = f.next(k + 1) {
			if int(k) == len(f.own) {
				k, period = f.next(0), period+1
			}
			b := &f.Buffers[f.own[k]]
			if b.Lower+period*f.Period >= end {
				return turns
			}
			if death := b.Upper + period*f.Period; death <= end && f.tried[k] != f.tries {
				turns, now = append(turns, turn{f.own[k], int(period)}), death
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
