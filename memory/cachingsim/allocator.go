package cachingsim

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/memory/snapshot"
)

// ErrOutOfMemory is wrapped by the error that Malloc returns if the device is full even after the cache
// has been emptied.
var ErrOutOfMemory = errors.New("cachingsim: out of memory")

// ErrUnknown is wrapped by the errors that Free, Retire and Complete return for an address without a
// block in the required state.
var ErrUnknown = errors.New("cachingsim: nothing is allocated there")

// Config selects the simulated allocator. The zero value is PyTorch's default on a device
// without a limit.
type Config struct {
	Expandable bool  // expandable_segments:True
	MaxSplit   int64 // max_split_size in bytes; 0 means no limit
	Capacity   int64 // size of the device in bytes; 0 means no limit
	History    bool  // record a trace for Snapshot

	// Place returns the address of a new segment of a given size, as the driver would: a multiple of 512,
	// above 0, outside every other segment. With Expandable, it is called for whole reserved ranges. By
	// default, addresses ascend.
	Place func(bytes int64) int64
}

// Allocator is the allocator of one device. It is not safe for concurrent use.
type Allocator struct {
	config Config
	split  int64 // minimum size of blocks that are not split

	small, large pool
	live         map[int64]*block // allocated or pending blocks by address
	reserved     int64            // bytes allocated from the device
	next         int64            // address of the next segment without Config.Place

	stats Stats
	trace []snapshot.TraceEntry
}

// New returns an empty allocator.
func New(config Config) *Allocator {
	a := &Allocator{
		config: config, split: config.MaxSplit, small: newPool(true), large: newPool(false),
		live: map[int64]*block{}, next: firstAddress,
	}
	if a.split <= 0 {
		a.split = math.MaxInt64
	}
	return a
}

// firstAddress is close to the addresses that drivers return.
const firstAddress = 0x7f00_0000_0000

// Request is the argument of Malloc.
type Request struct {
	Bytes  int64 // positive
	Stream int64
	Frames []snapshot.Frame // call stack, for the history
}

// Malloc allocates a block and returns its address. It first looks for a block in the pool, then tries to
// get one from the device. With MaxSplit, it tries again after returning blocks too large to be split to the
// device, and finally after emptying the cache. The error wraps ErrOutOfMemory if the device is full.
func (a *Allocator) Malloc(r Request) (int64, error) {
	if r.Bytes <= 0 || r.Bytes > maxRequest {
		return 0, fmt.Errorf("cachingsim: a request for %d bytes, want 1 to %d", r.Bytes, int64(maxRequest))
	}
	size := roundSize(r.Bytes)
	p := &a.large
	if size <= smallSize {
		p = &a.small
	}
	found := a.fit(p, r.Stream, size)
	if found == nil {
		found = a.grow(p, r, size)
	}
	if found == nil && a.releaseOversize(p, r.Stream, size) {
		found = a.grow(p, r, size)
	}
	if found == nil {
		a.EmptyCache()
		a.stats.Retries++
		found = a.grow(p, r, size)
	}
	if found == nil {
		a.stats.OutOfMemory++
		a.record(snapshot.OutOfMemory, a.config.Capacity-a.reserved, size, r.Stream, r.Frames)
		return 0, fmt.Errorf("%w: %d bytes requested, %d reserved of %d, of which %d are allocated",
			ErrOutOfMemory, r.Bytes, a.reserved, a.config.Capacity, a.stats.Allocated.Current)
	}
	b := a.cut(found, size)
	b.state, b.requested, b.frames = snapshot.Live, r.Bytes, r.Frames
	a.live[b.address] = b
	a.record(snapshot.Alloc, b.address, r.Bytes, b.stream, r.Frames)
	a.stats.Allocated.add(b.size)
	a.stats.Active.add(b.size)
	a.stats.Requested.add(b.requested)
	return b.address, nil
}

// maxRequest prevents sums from overflowing 64 bits.
const maxRequest = 1 << 50

// Free frees an allocation.
func (a *Allocator) Free(address int64) error {
	if err := a.Retire(address); err != nil {
		return err
	}
	return a.Complete(address)
}

// Retire marks an allocation as freed, but keeps its bytes in use until Complete, like a free that has to
// wait for another stream.
func (a *Allocator) Retire(address int64) error {
	b := a.live[address]
	if b == nil || b.state != snapshot.Live {
		return fmt.Errorf("%w: address %#x", ErrUnknown, address)
	}
	b.state = snapshot.Pending
	a.stats.Allocated.add(-b.size)
	a.record(snapshot.FreeRequested, address, b.requested, b.stream, b.frames)
	return nil
}

// Complete returns the block of a retired allocation to its pool, merged with its free
// neighbors.
func (a *Allocator) Complete(address int64) error {
	b := a.live[address]
	if b == nil || b.state != snapshot.Pending {
		return fmt.Errorf("%w: address %#x", ErrUnknown, address)
	}
	a.record(snapshot.FreeCompleted, address, b.requested, b.stream, b.frames)
	a.stats.Active.add(-b.size)
	a.stats.Requested.add(-b.requested)
	delete(a.live, address)
	b.state, b.requested, b.frames = snapshot.Inactive, 0, nil
	b.merge(b.prev)
	b.merge(b.next)
	b.pool.free.insert(b)
	return nil
}

// fit takes the best free block of a pool: the smallest that is large enough, and among equal ones the
// one with the lowest address. In expandable segments, a block at the end of the mapped pages counts as
// being as large as it can grow, so that it is taken last. fit returns nil if no block is large enough, or if
// MaxSplit forbids the best one for this size.
func (a *Allocator) fit(p *pool, stream, size int64) *block {
	i := p.free.search(block{stream: stream, size: size})
	b := p.free.at(i, stream)
	if b == nil {
		return nil
	}
	if a.config.Expandable {
		for next := p.free.at(i+1, stream); next != nil && next.expandable() < b.expandable(); next = p.free.at(i+1, stream) {
			b, i = next, i+1
		}
	}
	if size < a.split && b.size >= a.split {
		return nil // blocks that are too large to be split are not used for small requests
	}
	if size >= a.split && b.size >= size+largeSegment {
		return nil // the block may be larger than the request, but by less than a segment
	}
	p.free.delete(b)
	return b
}

// grow returns a new block of at least size bytes from the device, or nil if the device has too little memory.
func (a *Allocator) grow(p *pool, r Request, size int64) *block {
	if a.config.Expandable {
		return a.expand(p, r, size)
	}
	bytes := segmentSize(size)
	if !a.room(bytes) {
		return nil
	}
	b := &block{pool: p, stream: r.Stream, address: a.place(bytes), size: bytes, state: snapshot.Inactive, mapped: true, segment: r.Frames}
	a.reserve(bytes)
	a.stats.Segments++
	a.record(snapshot.SegmentAlloc, b.address, bytes, r.Stream, r.Frames)
	return b
}

// cut splits a block that was taken from the pool: it returns the low size bytes and puts the rest back into
// the pool. It returns the whole block if the rest is too small, or the block may not be split.
func (a *Allocator) cut(b *block, size int64) *block {
	rest := b.size - size
	if b.pool.small || a.config.Expandable {
		if rest < minBlock {
			return b
		}
	} else if size >= a.split || rest <= smallSize {
		return b
	}
	b.divide(size)
	b.pool.free.insert(b.next)
	return b
}

// room reports whether the device has this many bytes left.
func (a *Allocator) room(bytes int64) bool {
	return a.config.Capacity <= 0 || a.reserved+bytes <= a.config.Capacity
}

func (a *Allocator) reserve(bytes int64) {
	a.reserved += bytes
	a.stats.Reserved.add(bytes)
}

func (a *Allocator) place(bytes int64) int64 {
	if a.config.Place != nil {
		return a.config.Place(bytes)
	}
	address := a.next
	a.next += roundUp(bytes, roundLarge)
	return address
}

func (a *Allocator) record(action snapshot.Action, address, size, stream int64, frames []snapshot.Frame) {
	if a.config.History {
		a.trace = append(a.trace, snapshot.TraceEntry{
			Action: action, Address: address, Size: size, Stream: stream, Time: int64(len(a.trace)), Frames: frames,
		})
	}
}
