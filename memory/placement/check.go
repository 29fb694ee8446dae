package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
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

	byOffset := make([]int32, len(offsets)) // buffers from low to high
	for i := range byOffset {
		byOffset[i] = int32(i)
	}
	slices.SortStableFunc(byOffset, func(x, y int32) int { return cmp.Compare(offsets[x], offsets[y]) })
	rank := make([]int32, len(offsets)) // of a buffer in byOffset
	for r, i := range byOffset {
		rank[i] = int32(r)
	}
	var alive []int32 // ranks, ascending
	for _, c := range p.changes() {
		at, _ := slices.BinarySearch(alive, rank[c.buffer])
		if !c.birth {
			alive = slices.Delete(alive, at, at+1)
			continue
		}
		if at > 0 {
			if b := byOffset[alive[at-1]]; offsets[b]+p.Buffers[b].Size > offsets[c.buffer] {
				return 0, overlap(p, offsets, b, c)
			}
		}
		if at < len(alive) {
			if b := byOffset[alive[at]]; offsets[c.buffer]+p.Buffers[c.buffer].Size > offsets[b] {
				return 0, overlap(p, offsets, b, c)
			}
		}
		alive = slices.Insert(alive, at, rank[c.buffer])
	}
	return height, nil
}

func overlap(p *Problem, offsets []int64, there int32, c change) error {
	return fmt.Errorf("%w: at time %d buffer %d at [%d, %d) overlaps buffer %d at [%d, %d)", ErrOverlap, c.time,
		c.buffer, offsets[c.buffer], offsets[c.buffer]+p.Buffers[c.buffer].Size,
		there, offsets[there], offsets[there]+p.Buffers[there].Size)
}
