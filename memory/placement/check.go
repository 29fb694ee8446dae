package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// ErrOverlap is wrapped by the errors of Check for a valid problem.
var ErrOverlap = errors.New("placement: not a layout")

// Check returns the height of a layout, or an ErrOverlap that names the buffers at fault: two that share
// a byte at the same time, or one that is below 0, beyond the range of an int64, or not aligned. It is also
// an ErrOverlap if offsets has the wrong length, and an ErrProblem if the problem is invalid. Check is
// independent of the code that creates layouts. It sweeps through time, keeping the live buffers in order of
// offset, so that a new buffer has to be compared only with its two neighbors: the others are disjoint.
func Check(p *Problem, offsets []int64) (height int64, err error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	if len(offsets) != len(p.Buffers) {
		return 0, fmt.Errorf("%w: %d offsets for %d buffers", ErrOverlap, len(offsets), len(p.Buffers))
	}
	for i, at := range offsets {
		b := &p.Buffers[i]
		switch {
		case at < 0:
			return 0, fmt.Errorf("%w: buffer %d is at %d, which is below 0", ErrOverlap, i, at)
		case at > math.MaxInt64-b.Size:
			return 0, fmt.Errorf("%w: buffer %d of %d bytes at %d ends above %d", ErrOverlap, i, b.Size, at, int64(math.MaxInt64))
		case b.Align > 1 && at%b.Align != 0:
			return 0, fmt.Errorf("%w: buffer %d is at %d, which is not a multiple of %d", ErrOverlap, i, at, b.Align)
		}
		height = max(height, at+b.Size)
	}

	byOffset := make([]int32, len(offsets)) // buffers in order of offset
	for i := range byOffset {
		byOffset[i] = int32(i)
	}
	slices.SortStableFunc(byOffset, func(x, y int32) int { return cmp.Compare(offsets[x], offsets[y]) })
	rank := make([]int32, len(offsets)) // by buffer: its index in byOffset
	for r, i := range byOffset {
		rank[i] = int32(r)
	}
	alive := newRankSet(len(offsets))
	for _, c := range p.changes() {
		at := int(rank[c.buffer])
		if !c.birth {
			alive.remove(at)
			continue
		}
		if below := alive.below(at); below >= 0 {
			if b := byOffset[below]; offsets[b]+p.Buffers[b].Size > offsets[c.buffer] {
				return 0, overlap(p, offsets, b, c)
			}
		}
		if above := alive.above(at); above >= 0 {
			if b := byOffset[above]; offsets[c.buffer]+p.Buffers[c.buffer].Size > offsets[b] {
				return 0, overlap(p, offsets, b, c)
			}
		}
		alive.add(at)
	}
	return height, nil
}

// rankSet is a set of ranks: a bit for each rank, then a bit for each nonzero word of these, and so on up
// to a single word. Whatever the size, every method reads only a few words.
type rankSet [][]uint64

func newRankSet(n int) (s rankSet) {
	for ok := true; ok; ok = n > 1 {
		n = (n + 63) / 64
		s = append(s, make([]uint64, n))
	}
	return s
}

func (s rankSet) add(i int) {
	for _, level := range s {
		level[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (s rankSet) remove(i int) {
	for _, level := range s {
		if level[i/64] &^= 1 << (i % 64); level[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// below returns the greatest rank below i, or -1 if there is none.
func (s rankSet) below(i int) int {
	for k := range s {
		if i--; i < 0 {
			break
		}
		if word := s[k][i/64] << (63 - i%64); word != 0 {
			for i -= bits.LeadingZeros64(word); k > 0; k-- {
				i = 64*i + 63 - bits.LeadingZeros64(s[k-1][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}

// above returns the least rank above i, or -1 if there is none.
func (s rankSet) above(i int) int {
	for k := range s {
		if i++; i/64 >= len(s[k]) {
			break
		}
		if word := s[k][i/64] >> (i % 64); word != 0 {
			for i += bits.TrailingZeros64(word); k > 0; k-- {
				i = 64*i + bits.TrailingZeros64(s[k-1][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}

func overlap(p *Problem, offsets []int64, there int32, c change) error {
	return fmt.Errorf("%w: at time %d buffer %d at [%d, %d) overlaps buffer %d at [%d, %d)", ErrOverlap, c.time,
		c.buffer, offsets[c.buffer], offsets[c.buffer]+p.Buffers[c.buffer].Size,
		there, offsets[there], offsets[there]+p.Buffers[there].Size)
}
