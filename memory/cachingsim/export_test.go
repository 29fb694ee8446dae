package cachingsim

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory/snapshot"
)

// Check verifies the invariants of all blocks: blocks tile their segments, links are
// consistent, adjacent blocks that can be merged are merged, sets contain exactly the free
// blocks in order, and the statistics are the sums.
func (a *Allocator) Check() error {
	var reserved, allocated, active, requested int64
	segments, seen := 0, map[*block]bool{}
	for _, head := range a.heads() {
		if head.reserved == nil {
			segments++
		}
		for b := head; b != nil; b = b.next {
			seen[b] = true
			if b.size <= 0 || b.size%minBlock != 0 || b.address%minBlock != 0 {
				return fmt.Errorf("block %#x has %d bytes", b.address, b.size)
			}
			if next := b.next; next != nil {
				if next.prev != b || next.address != b.end() || next.pool != b.pool || next.stream != b.stream || next.reserved != b.reserved {
					return fmt.Errorf("block %#x and its neighbour %#x do not fit together", b.address, next.address)
				}
				if b.state == snapshot.Inactive && next.state == snapshot.Inactive && b.mapped == next.mapped {
					return fmt.Errorf("%#x and %#x are free and adjacent", b.address, next.address)
				}
			}
			if b.mapped {
				reserved += b.size
			} else if b.reserved == nil || b.state != snapshot.Inactive {
				return fmt.Errorf("block %#x has no memory", b.address)
			}
			if b.state == snapshot.Inactive {
				if b.requested != 0 || a.live[b.address] == b {
					return fmt.Errorf("%#x is free and in use", b.address)
				}
				continue
			}
			if a.live[b.address] != b || b.requested > b.size {
				return fmt.Errorf("%#x is in use and not known", b.address)
			}
			if roundSize(b.requested) > smallSize == b.pool.small {
				return fmt.Errorf("%#x of %d bytes is in the wrong pool", b.address, b.requested)
			}
			active, requested = active+b.size, requested+b.requested
			if b.state == snapshot.Live {
				allocated += b.size
			}
		}
	}
	sets := 0
	for _, p := range []*pool{&a.small, &a.large} {
		for _, s := range []set{p.free, p.unmapped} {
			sets += len(s.blocks)
			if !slices.IsSortedFunc(s.blocks, s.order) {
				return fmt.Errorf("a set is out of order")
			}
			for _, b := range s.blocks {
				if !seen[b] || b.pool != p || b.state != snapshot.Inactive {
					return fmt.Errorf("a set holds %#x", b.address)
				}
			}
		}
		for _, b := range p.unmapped.blocks {
			if b.address%minBlock != 0 || b.size%p.page() != 0 || (b.address-b.reserved.address)%p.page() != 0 {
				return fmt.Errorf("unmapped %#x is not a sequence of pages", b.address)
			}
		}
	}
	if sets+len(a.live) != len(seen) {
		return fmt.Errorf("%d blocks, %d in sets, %d in use", len(seen), sets, len(a.live))
	}
	s := a.stats
	if s.Reserved.Current != reserved || a.reserved != reserved || s.Allocated.Current != allocated || s.Active.Current != active || s.Requested.Current != requested || s.Segments != segments {
		return fmt.Errorf("statistics %+v; counted reserved %d, allocated %d, active %d, requested %d, segments %d", s, reserved, allocated, active, requested, segments)
	}
	if a.config.Capacity > 0 && reserved > a.config.Capacity {
		return fmt.Errorf("%d reserved of %d", reserved, a.config.Capacity)
	}
	return nil
}
