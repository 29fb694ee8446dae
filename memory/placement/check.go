package placement

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// ErrOverlap is wrapped by what Check finds wrong with a layout.
var ErrOverlap = errors.New("placement: not a layout")

// Check returns the height of a layout, or an ErrOverlap that names the buffers: two
// that share a byte at the same time, one below 0, or one that is not aligned. It
// knows nothing of how layouts are made. It walks through time with all that is alive
// in order of offset, so that a newcomer is compared with its two neighbours: what was
// alive before is disjoint already.
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
			return 0, fmt.Errorf("%w: buffer %d lies at %d, which is below 0", ErrOverlap, i, at)
		case at > math.MaxInt64-b.Size:
			return 0, fmt.Errorf("%w: buffer %d of %d bytes at %d ends above %d", ErrOverlap, i, b.Size, at, int64(math.MaxInt64))
		case b.Align > 1 && at%b.Align != 0:
			return 0, fmt.Errorf("%w: buffer %d lies at %d, which is not a multiple of %d", ErrOverlap, i, at, b.Align)
		}
		height = max(height, at+b.Size)
	}

	byOffset := ascending(offsets)      // buffers from low to high
	rank := make([]int32, len(offsets)) // of a buffer in byOffset
	for r, i := range byOffset {
		rank[i] = int32(r)
	}
	alive := newRanks(len(offsets))
	for _, c := range p.changes() {
		r := int(rank[c.buffer])
		if !c.birth {
			alive.remove(r)
			continue
		}
		if below := alive.before(r); below >= 0 {
			if b := byOffset[below]; offsets[b]+p.Buffers[b].Size > offsets[c.buffer] {
				return 0, overlap(p, offsets, b, c)
			}
		}
		if above := alive.after(r); above >= 0 {
			if b := byOffset[above]; offsets[c.buffer]+p.Buffers[c.buffer].Size > offsets[b] {
				return 0, overlap(p, offsets, b, c)
			}
		}
		alive.add(r)
	}
	return height, nil
}

func overlap(p *Problem, offsets []int64, there int32, c change) error {
	return fmt.Errorf("%w: at time %d buffer %d at [%d, %d) overlaps buffer %d at [%d, %d)", ErrOverlap, c.time,
		c.buffer, offsets[c.buffer], offsets[c.buffer]+p.Buffers[c.buffer].Size,
		there, offsets[there], offsets[there]+p.Buffers[there].Size)
}

// ascending returns the indices of numbers of 0 or more from low to high; those of equal
// numbers are in order. It sorts by one byte after the other, the lowest first.
func ascending(numbers []int64) []int32 {
	order, next := make([]int32, len(numbers)), make([]int32, len(numbers))
	most := int64(0)
	for i, n := range numbers {
		order[i] = int32(i)
		most = max(most, n)
	}
	for shift := 0; most>>shift > 0; shift += 8 {
		var before [257]int32 // by byte, how many come before it
		for _, n := range numbers {
			before[int(byte(n>>shift))+1]++
		}
		for b := range 256 {
			before[b+1] += before[b]
		}
		for _, i := range order {
			b := byte(numbers[i] >> shift)
			next[before[b]] = i
			before[b]++
		}
		order, next = next, order
	}
	return order
}

// ranks is an ordered set of numbers below a limit: a tree of 64 bits a node, from the
// numbers themselves up to one word.
type ranks [][]uint64

func newRanks(limit int) ranks {
	var levels ranks
	for words := (limit + 63) / 64; ; words = (words + 63) / 64 {
		levels = append(levels, make([]uint64, words))
		if words <= 1 {
			return levels
		}
	}
}

func (s ranks) add(i int) {
	for _, words := range s {
		words[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (s ranks) remove(i int) {
	for _, words := range s {
		words[i/64] &^= 1 << (i % 64)
		if words[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// before returns the largest number below i, or -1.
func (s ranks) before(i int) int {
	for level, words := range s {
		if w := words[i/64] & (1<<(i%64) - 1); w != 0 {
			i = i/64*64 + 63 - bits.LeadingZeros64(w)
			for ; level > 0; level-- {
				i = i*64 + 63 - bits.LeadingZeros64(s[level-1][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}

// after returns the smallest number above i, or -1.
func (s ranks) after(i int) int {
	for level, words := range s {
		if w := words[i/64] &^ (2<<(i%64) - 1); w != 0 {
			i = i/64*64 + bits.TrailingZeros64(w)
			for ; level > 0; level-- {
				i = i*64 + bits.TrailingZeros64(s[level-1][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}
