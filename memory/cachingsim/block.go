package cachingsim

import "github.com/weir-ml/weir/memory/snapshot"

// block is a part of a segment, or of a reserved range. The blocks of a segment are linked in
// order.
type block struct {
	pool       *pool
	stream     int64
	address    int64
	size       int64
	requested  int64
	state      snapshot.State
	mapped     bool // has memory; a part of a reserved range may have none
	reserved   *reservation
	prev, next *block
	frames     []snapshot.Frame // call stack of its allocation
	segment    []snapshot.Frame // in the segment's first block: call stack of the segment's allocation
}

// reservation is a range of addresses whose pages are mapped one by one.
type reservation struct{ address, size int64 }

// pool holds the free blocks for small sizes, or for large ones.
type pool struct {
	small    bool
	free     set // inactive and mapped
	unmapped set
}

func newPool(small bool) pool {
	return pool{small: small, free: set{order: bySize}, unmapped: set{order: byAddress}}
}

// page returns the unit by which a reserved range of the pool grows.
func (p *pool) page() int64 {
	if p.small {
		return smallSegment
	}
	return largeSegment
}

// put adds a free block.
func (p *pool) put(b *block) {
	if b.mapped {
		p.free.insert(b)
	} else {
		p.unmapped.insert(b)
	}
}

// take removes a free block.
func (p *pool) take(b *block) {
	if b.mapped {
		p.free.delete(b)
	} else {
		p.unmapped.delete(b)
	}
}

// whole reports whether the block is its whole segment.
func (b *block) whole() bool { return b.prev == nil && b.next == nil }

// end returns the address just past the block.
func (b *block) end() int64 { return b.address + b.size }

// expandable returns the size to which a free block can grow in place.
func (b *block) expandable() int64 {
	if b.next != nil && !b.next.mapped {
		return b.size + b.next.size
	}
	return b.size
}

// divide splits a block that is in no set: b keeps its low size bytes, and the rest becomes its neighbor.
func (b *block) divide(size int64) {
	rest := *b
	rest.address, rest.size, rest.prev, rest.segment = b.address+size, b.size-size, b, nil
	if rest.next != nil {
		rest.next.prev = &rest
	}
	b.size, b.next = size, &rest
}

// merge absorbs a neighbor if it is free, and mapped if and only if b is. Otherwise it does nothing.
func (b *block) merge(other *block) {
	if other == nil || other.state != snapshot.Inactive || other.mapped != b.mapped {
		return
	}
	b.pool.take(other)
	b.size += other.size
	if other == b.next {
		if b.next = other.next; b.next != nil {
			b.next.prev = b
		}
		return
	}
	b.address, b.segment = other.address, other.segment
	if b.prev = other.prev; b.prev != nil {
		b.prev.next = b
	}
}
