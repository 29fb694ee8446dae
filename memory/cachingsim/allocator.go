package cachingsim

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/memory/snapshot"
)

// ErrOutOfMemory is wrapped by the errors of Malloc where the device is full even
// after the cache was emptied.
var ErrOutOfMemory = errors.New("cachingsim: out of memory")

// ErrUnknown is wrapped by the errors of Free, Retire and Complete for an address at
// which nothing of that kind is.
var ErrUnknown = errors.New("cachingsim: nothing is allocated there")

// Config says which allocator is simulated. The zero value is PyTorch's default on a
// device without limit.
type Config struct {
	Expandable bool  // expandable_segments:True
	MaxSplit   int64 // max_split_size in bytes; 0 is no limit
	Capacity   int64 // bytes of the device; 0 is no limit
	History    bool  // keep a trace for Snapshot

	// Place gives the address of a new segment of so many bytes, as the driver would: a
	// multiple of 512, above 0, outside of every other segment. With Expandable it is asked for the
	// address of a whole reserved range. By default addresses ascend.
	Place func(bytes int64) int64
}

// Allocator is the allocator of one device. It is for one goroutine.
type Allocator struct {
	config Config
	split  int64 // the size from which blocks are not split

	small, large pool
	live         map[int64]*block // allocated or pending, by address
	reserved     int64            // bytes taken from the device
	next         int64            // address of the next segment, where nobody gives one

	stats Stats
	trace []snapshot.Entry
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

// firstAddress is about where drivers put memory.
const firstAddress = 0x7f00_0000_0000

// Request is what Malloc is asked for.
type Request struct {
	Bytes  int64 // positive
	Stream int64
	Frames []snapshot.Frame // who asks, for the history
}

// Malloc allocates and returns the address. It looks for a block in the pool, then
// for one of the device, then again for one of the device after it has given back the
// cached segments.
func (a *Allocator) Malloc(r Request) (int64, error) {
	if r.Bytes <= 0 || r.Bytes > maxRequest {
		return 0, fmt.Errorf("cachingsim: a request for %d bytes; between 1 and %d can be asked for", r.Bytes, int64(maxRequest))
	}
	size := roundSize(r.Bytes)
	p := a.pool(size)
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
		return 0, fmt.Errorf("%w: %d bytes asked for, %d reserved of %d, of which %d are allocated",
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

// maxRequest keeps sums within 64 bits.
const maxRequest = 1 << 50

// Free ends an allocation.
func (a *Allocator) Free(address int64) error {
	if err := a.Retire(address); err != nil {
		return err
	}
	return a.Complete(address)
}

// Retire asks for the end of an allocation, and leaves its bytes taken until Complete,
// as a free does that another stream has to finish with.
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

// Complete puts the block of a retired allocation back into its pool, merged with its
// free neighbours.
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

// fit takes the best free block of a pool: the smallest that is large enough, of
// equal ones the lowest. Where segments expand, a block at the end of the mapped pages
// counts as large as it can become, so that it is taken last.
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
		return nil // what is not to be split is not for small requests
	}
	if size >= a.split && b.size >= size+largeSegment {
		return nil // it may be larger, but not by a segment
	}
	p.free.delete(b)
	return b
}

// grow gets a block from the device, or nil.
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

// cut returns the low part of a block that was taken from the pool, and puts the rest
// back where it is worth it.
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

func (a *Allocator) pool(size int64) *pool {
	if size <= smallSize {
		return &a.small
	}
	return &a.large
}

// room reports whether the device has so many bytes more.
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
		a.trace = append(a.trace, snapshot.Entry{
			Action: action, Address: address, Size: size, Stream: stream, Time: int64(len(a.trace)), Frames: frames,
		})
	}
}
