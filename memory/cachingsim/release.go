package cachingsim

import (
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// EmptyCache returns completely free memory to the device: segments, and pages of expandable ranges, that
// contain no live block. A single live block of 512 bytes keeps its segment.
func (a *Allocator) EmptyCache() {
	for _, p := range []*pool{&a.large, &a.small} {
		for _, b := range slices.Clone(p.free.blocks) {
			switch {
			case b.reserved != nil:
				a.unmapPages(b)
			case b.whole():
				a.release(b)
			}
		}
	}
}

// releaseOversize returns blocks too large to be split to the device, but no more than the request needs:
// one that is large enough, or several, the largest first. It reports whether that was enough. Without
// MaxSplit, or with expandable segments, it does nothing.
func (a *Allocator) releaseOversize(p *pool, stream, size int64) bool {
	if a.config.MaxSplit <= 0 || a.config.Expandable {
		return false
	}
	needed := max(size, a.split)
	i := p.free.search(block{stream: stream, size: needed})
	if b := p.free.at(i, stream); b != nil {
		a.release(b)
		return true
	}
	var released int64
	for i--; released < needed; i-- {
		b := p.free.at(i, stream)
		if b == nil || b.size < a.split {
			return false
		}
		released += b.size
		a.release(b)
	}
	return true
}

// release returns a segment to the device.
func (a *Allocator) release(b *block) {
	b.pool.take(b)
	a.reserve(-b.size)
	a.stats.Segments--
	a.record(snapshot.SegmentFree, b.address, b.size, b.stream, b.segment)
}
