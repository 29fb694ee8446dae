package cachingsim

import "github.com/weir-ml/weir/memory/snapshot"

// unlimited is the size of the address range on a device without a limit.
const unlimited = 1 << 44

// expand returns a block of at least the given size by mapping pages, at the lowest address at which
// consecutive free and unmapped blocks are long enough. It returns nil if the device does not have enough
// pages; the pages mapped so far stay mapped.
func (a *Allocator) expand(p *pool, r Request, size int64) *block {
	b := a.expandableAt(p, r.Stream, size)
	if !b.mapped && !a.mapPages(b, min(b.size, size), r.Frames) {
		return nil
	}
	for b.size < size {
		next := b.next
		if !a.mapPages(next, min(size-b.size, next.size), r.Frames) {
			return nil
		}
		b = next // it has absorbed the block before it
	}
	p.take(b)
	return b
}

// expandableAt returns the first block to use: an unmapped one, or the free one before it. If no such blocks
// are large enough, it reserves a new range and returns its block. The range is an eighth larger than the
// device, because pages in the middle may stay unmapped.
func (a *Allocator) expandableAt(p *pool, stream, size int64) *block {
	for i := p.unmapped.search(block{stream: stream}); ; i++ {
		b := p.unmapped.at(i, stream)
		if b == nil {
			break
		}
		if b.prev != nil && b.prev.state == snapshot.Inactive {
			b = b.prev
		}
		if fits(b, size) {
			return b
		}
	}
	bytes := int64(unlimited)
	if a.config.Capacity > 0 {
		bytes = a.config.Capacity + a.config.Capacity/8
	}
	bytes = roundUp(max(bytes, size), p.page())
	return a.rangeAt(p, stream, &reservation{a.place(bytes), bytes})
}

// rangeAt turns a reserved range into a single unmapped block.
func (a *Allocator) rangeAt(p *pool, stream int64, r *reservation) *block {
	b := &block{pool: p, stream: stream, address: r.address, size: r.size, state: snapshot.Inactive, reserved: r}
	p.put(b)
	return b
}

// fits reports whether b and the free blocks directly after it, mapped or not, are large enough together.
func fits(b *block, size int64) bool {
	var bytes int64
	for ; bytes < size && b != nil && b.state == snapshot.Inactive; b = b.next {
		bytes += b.size
	}
	return bytes >= size
}

// mapPages maps the beginning of an unmapped block for at least the given number of bytes, and
// reports whether the device had enough memory. The block is merged with its neighbors and put
// into the pool.
func (a *Allocator) mapPages(b *block, bytes int64, frames []snapshot.Frame) bool {
	bytes = roundUp(bytes, b.pool.page())
	if !a.room(bytes) {
		return false
	}
	b.pool.take(b)
	if bytes < b.size {
		b.divide(bytes)
		b.pool.put(b.next)
	}
	b.mapped = true
	a.reserve(bytes)
	a.record(snapshot.SegmentMap, b.address, bytes, b.stream, frames)
	b.merge(b.prev)
	b.merge(b.next)
	if b.prev == nil && b.segment == nil {
		b.segment = frames
	}
	b.pool.put(b)
	return true
}

// unmapPages unmaps the pages that a free block covers completely. A range without mapped pages
// is released.
func (a *Allocator) unmapPages(b *block) {
	page, base := b.pool.page(), b.reserved.address
	from, to := base+roundUp(b.address-base, page), base+(b.end()-base)/page*page
	if from >= to {
		return
	}
	b.pool.take(b)
	if from > b.address {
		b.divide(from - b.address)
		b.pool.put(b)
		b = b.next
	}
	if to < b.end() {
		b.divide(to - b.address)
		b.pool.put(b.next)
	}
	b.mapped = false
	a.reserve(from - to)
	a.record(snapshot.SegmentUnmap, from, to-from, b.stream, b.segment)
	b.merge(b.prev)
	b.merge(b.next)
	if !b.whole() {
		b.pool.put(b)
	}
}
