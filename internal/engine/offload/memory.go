package offload

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/weir-ml/weir/memory"
)

// ErrChecksum is returned by Wait if a loaded copy differs from the stored bytes.
var ErrChecksum = errors.New("offload: the loaded bytes differ from the stored bytes")

// Memory is the far memory of one rank. Only the rank's goroutine may call its methods. The embedded
// arena is for accounting and planning: only Store and Free may allocate and release in it.
type Memory[T any] struct {
	*memory.Arena
	near   memory.Movable[T]
	bytes  memory.Range
	device memory.Offloader[T] // makes the copies if there are no lanes; nil if near is set
	queues memory.FarMemory[T] // the device's queues
	copies []farCopy
	unused []int32 // indices of the copies not in use
	// storing and loading are the queues of the lanes, nil if there are no lanes.
	storing, loading chan int32
	// stopped makes the lanes skip the copies that they have not begun.
	stopped atomic.Bool
	lanes   sync.WaitGroup
}

// farCopy is one copy in far memory.
type farCopy struct {
	handle memory.Handle // handle of the copy's allocation
	offset int64
	near   []byte // borrowed while the copy runs
	sum    uint32 // the checksum of the stored bytes
	err    error
	done   chan struct{} // receives one value for each Store or Load that completes
}

// New returns the far memory of the rank whose space is near. It takes ownership of bytes, and never
// holds more than limit bytes; 0 means no limit.
func New[T any](near memory.Movable[T], bytes memory.Range, limit int64) (*Memory[T], error) {
	if limit == 0 {
		limit = min(1<<46, math.MaxInt-1<<16) // only addresses are reserved
	}
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: limit, Range: bytes})
	if err != nil {
		return nil, fmt.Errorf("offload: %w", errors.Join(err, bytes.Release()))
	}
	return &Memory[T]{Arena: arena, near: near, bytes: bytes}, nil
}

// NewOn returns the far memory of a rank whose device makes the copies. There are no lanes and no
// checksums, and Wait makes the device wait instead of the caller.
func NewOn[T any](device memory.Offloader[T], limit int64) (*Memory[T], error) {
	queues, err := device.NewFarMemory()
	if err != nil {
		return nil, err
	}
	m, err := New[T](nil, queues, limit)
	if err == nil {
		m.device, m.queues = device, queues
	}
	return m, err
}

// Start starts the lanes for a step with at most n simultaneous copies.
func (m *Memory[T]) Start(n int) error {
	m.unused = m.unused[:0]
	for i := range n {
		if i == len(m.copies) {
			m.copies = append(m.copies, farCopy{done: make(chan struct{}, 1)})
		}
		m.unused = append(m.unused, int32(i))
	}
	if m.queues != nil {
		return m.queues.Begin(n)
	}
	m.stopped.Store(false)
	storing, loading := make(chan int32, n), make(chan int32, n)
	m.lanes.Go(func() { m.run(storing, m.store) })
	m.lanes.Go(func() { m.run(loading, m.load) })
	m.storing, m.loading = storing, loading
	return nil
}

// Stop ends the lanes. It completes the transfers that have begun, discards the others, and returns when
// no lane uses a near buffer any longer. The copies stay allocated. Without lanes, as after a first
// Stop, it does nothing.
func (m *Memory[T]) Stop() {
	if m.storing == nil {
		return
	}
	m.stopped.Store(true)
	close(m.storing)
	close(m.loading)
	m.storing, m.loading = nil, nil
	m.lanes.Wait()
	for i := range m.copies {
		c := &m.copies[i]
		*c = farCopy{done: c.done}
		select {
		case <-c.done:
		default:
		}
	}
}

// Close stops the lanes and releases the range.
func (m *Memory[T]) Close() error {
	m.Stop()
	return m.Arena.Close()
}

// Store starts copying a near buffer to far memory, and returns the number of the copy.
func (m *Memory[T]) Store(h T) (number int32, err error) {
	near, bytes, err := m.borrow(h)
	if err != nil {
		return 0, err
	}
	if len(m.unused) == 0 {
		return 0, fmt.Errorf("%w: there are more copies than planned", memory.ErrUnplanned)
	}
	place, err := m.Arena.Alloc(memory.Saved, bytes)
	if err != nil {
		return 0, err
	}
	offset, _, err := m.Arena.Extent(place)
	if err != nil {
		return 0, err
	}
	last := len(m.unused) - 1
	number, m.unused = m.unused[last], m.unused[:last]
	c := &m.copies[number]
	c.handle, c.offset, c.near = place, offset, near
	if m.queues != nil {
		return number, m.queues.Store(number, h, offset)
	}
	m.storing <- number // the channel has room for every copy
	return number, nil
}

// borrow returns the size of a buffer, and its bytes if a lane copies them.
func (m *Memory[T]) borrow(h T) (near []byte, bytes int64, err error) {
	if m.queues != nil {
		return nil, m.device.Bytes(h), nil
	}
	near, err = m.near.View(h)
	return near, int64(len(near)), err
}

// Load starts copying a stored copy back to a near buffer of the same size.
func (m *Memory[T]) Load(number int32, h T) error {
	near, bytes, err := m.borrow(h)
	if err != nil {
		return err
	}
	c := &m.copies[number]
	if copied := m.Arena.Bytes(c.handle); bytes != copied {
		return fmt.Errorf("offload: a copy has %d bytes, but the buffer has %d", copied, bytes)
	}
	if m.queues != nil {
		return m.queues.Load(number, h, c.offset)
	}
	c.near = near
	m.loading <- number
	return nil
}

// Wait blocks until the last Store or Load of a copy is complete, and returns its error, or until
// ctx is done. waited reports whether Wait had to block. With NewOn it makes the device wait and
// does not block.
func (m *Memory[T]) Wait(ctx context.Context, number int32) (waited bool, err error) {
	if m.queues != nil {
		return false, m.queues.Await(number)
	}
	c := &m.copies[number]
	select {
	case <-c.done:
	default:
		waited = true
		select {
		case <-c.done:
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
	c.near = nil
	return waited, c.err
}

// Free frees a copy, whose last Load must be complete.
func (m *Memory[T]) Free(number int32) (freed int64, err error) {
	c := &m.copies[number]
	freed, err = m.Arena.Release(c.handle)
	c.handle = memory.Handle{}
	m.unused = append(m.unused, number)
	return freed, err
}

// Copied returns the size of a copy in bytes.
func (m *Memory[T]) Copied(number int32) int64 { return m.Arena.Bytes(m.copies[number].handle) }

// run is the goroutine of a lane: it transfers the copies in a queue until the queue is closed.
func (m *Memory[T]) run(queue <-chan int32, transfer func(*farCopy) error) {
	for number := range queue {
		c := &m.copies[number]
		if m.stopped.Load() {
			continue
		}
		c.err = transfer(c)
		c.done <- struct{}{}
	}
}

// checksums is the table for a polynomial that processors support with an instruction.
var checksums = crc32.MakeTable(crc32.Castagnoli)

// store writes a near buffer to the range.
func (m *Memory[T]) store(c *farCopy) error {
	c.sum = crc32.Checksum(c.near, checksums)
	n, err := m.bytes.WriteAt(c.near, c.offset)
	if err == nil && n < len(c.near) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("offload: a copy of %d bytes to offset %d, after %d bytes: %w", len(c.near), c.offset, n, err)
	}
	return nil
}

// load reads a near buffer from the range and verifies its checksum.
func (m *Memory[T]) load(c *farCopy) error {
	n, err := m.bytes.ReadAt(c.near, c.offset)
	if n == len(c.near) {
		err = nil // ReadAt may return io.EOF at the end of the range
	} else if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("offload: a copy of %d bytes from offset %d, after %d bytes: %w", len(c.near), c.offset, n, err)
	}
	if sum := crc32.Checksum(c.near, checksums); sum != c.sum {
		return fmt.Errorf("%w: %d bytes at offset %d have checksum %08x, but %08x was stored", ErrChecksum, len(c.near), c.offset, sum, c.sum)
	}
	return nil
}
