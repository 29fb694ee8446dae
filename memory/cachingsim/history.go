package cachingsim

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// Snapshot returns the segments of device 0 and, with Config.History, its trace.
func (a *Allocator) Snapshot() *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Traces:   [][]snapshot.TraceEntry{slices.Clone(a.trace)},
		Settings: snapshot.Settings{Expandable: a.config.Expandable, MaxSplit: a.config.MaxSplit},
	}
	for _, b := range a.heads() {
		s.Segments = append(s.Segments, segmentsFrom(b)...)
	}
	return s
}

// heads returns the first blocks of all segments and ranges, by address.
func (a *Allocator) heads() []*block {
	var heads []*block
	for _, set := range [][]*block{a.small.free.blocks, a.small.unmapped.blocks, a.large.free.blocks, a.large.unmapped.blocks} {
		heads = append(heads, set...)
	}
	for _, b := range a.live {
		heads = append(heads, b)
	}
	heads = slices.DeleteFunc(heads, func(b *block) bool { return b.prev != nil })
	slices.SortFunc(heads, func(a, b *block) int { return cmp.Compare(a.address, b.address) })
	return heads
}

// segmentsFrom returns a segment, or the mapped parts of a range.
func segmentsFrom(b *block) []snapshot.Segment {
	var segments []snapshot.Segment
	for open := false; b != nil; b = b.next {
		if !b.mapped {
			open = false
			continue
		}
		if !open {
			open = true
			segments = append(segments, snapshot.Segment{
				Address: b.address, Stream: b.stream, Small: b.pool.small, Expandable: b.reserved != nil, Frames: b.segment,
			})
		}
		s := &segments[len(segments)-1]
		s.Size += b.size
		s.Blocks = append(s.Blocks, snapshot.Block{Address: b.address, Size: b.size, Requested: b.requested, State: b.state, Frames: b.frames})
	}
	return segments
}
