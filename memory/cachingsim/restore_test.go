package cachingsim

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory/snapshot"
)

// Restore initializes an empty allocator with the segments of a snapshot, or with those that
// rewind.Segments found before its trace: in ascending order of addresses, tiled by their
// blocks. An expandable range is assumed to begin at its first segment.
//
// If a block of the large pool is followed by at most 1 MiB of free memory, both become one
// block, because so little is not split off.
func (a *Allocator) Restore(segments []snapshot.Segment) error {
	if a.reserved != 0 {
		return errors.New("cachingsim: only an empty allocator can be restored")
	}
	last := map[rangeKey]*block{}
	for i := range segments {
		s := &segments[i]
		if s.Expandable != a.config.Expandable {
			return fmt.Errorf("cachingsim: segment %#x: expandable is %v, and the allocator's setting %v", s.Address, s.Expandable, a.config.Expandable)
		}
		if err := a.restore(s, a.mappedAt(s, last)); err != nil {
			return err
		}
		a.reserve(s.Size)
	}
	a.trace = nil
	a.ResetPeaks()
	return nil
}

// rangeKey identifies the range of a segment.
type rangeKey struct {
	stream int64
	small  bool
}

// mappedAt returns a block that is a whole segment, in no set. For an expandable range, last
// has the unmapped block at its end.
func (a *Allocator) mappedAt(s *snapshot.Segment, last map[rangeKey]*block) *block {
	p := &a.large
	if s.Small {
		p = &a.small
	}
	if !s.Expandable {
		a.stats.Segments++
		return &block{pool: p, stream: s.Stream, address: s.Address, size: s.Size, state: snapshot.Inactive, mapped: true, segment: s.Frames}
	}
	key := rangeKey{s.Stream, s.Small}
	b := last[key]
	if b == nil {
		b = a.rangeAt(p, s.Stream, &reservation{s.Address, unlimited})
		b.segment = s.Frames
	}
	p.take(b)
	if s.Address > b.address {
		b.divide(s.Address - b.address)
		p.put(b)
		b = b.next
	}
	b.divide(s.Size)
	p.put(b.next)
	last[key] = b.next
	b.mapped = true
	return b
}

// restore divides a block into the blocks of a segment.
func (a *Allocator) restore(s *snapshot.Segment, b *block) error {
	rest := b.size
	for _, known := range folded(s) {
		if known.Address != b.address || known.Size <= 0 || known.Size > rest {
			break
		}
		rest -= known.Size
		if rest > 0 {
			b.divide(known.Size)
		}
		next := b.next
		b.state, b.requested, b.frames = known.State, known.Requested, known.Frames
		if b.state == snapshot.Inactive {
			b.requested = 0
			b.pool.put(b)
		} else {
			a.live[b.address] = b
			a.stats.Active.add(b.size)
			a.stats.Requested.add(b.requested)
		}
		if b.state == snapshot.Live {
			a.stats.Allocated.add(b.size)
		}
		b = next
	}
	if rest != 0 {
		return fmt.Errorf("cachingsim: the blocks of segment %#x do not tile it", s.Address)
	}
	return nil
}

// folded returns the blocks of a segment, each merged with the remainder that was not split
// off.
func folded(s *snapshot.Segment) []snapshot.Block {
	if s.Small || s.Expandable {
		return s.Blocks
	}
	var blocks []snapshot.Block
	for _, b := range s.Blocks {
		if n := len(blocks); n > 0 && b.State == snapshot.Inactive && b.Size <= smallSize && blocks[n-1].State != snapshot.Inactive {
			blocks[n-1].Size += b.Size
			continue
		}
		blocks = append(blocks, b)
	}
	return blocks
}
