package ptx

import (
	"encoding/binary"
	"fmt"
)

// Region is a live buffer of global memory.
type Region struct {
	// Base is the address of Data[0].
	Base uint64
	Data []byte
	// Written has a nonzero entry for each byte of Data that has been written. A launch updates
	// it. nil means that everything has been written.
	Written []byte
}

// Memory is global memory.
type Memory interface {
	// Region returns the live buffer that contains an address, or an error that explains why
	// there is none. A launch calls it once for each buffer, which must not change during the
	// launch.
	Region(address uint64) (*Region, error)
}

// LaunchError is an error that a launch detects.
type LaunchError struct {
	Kernel        string
	Line          int // of the PTX
	Block, Thread [3]int
	Reason        string
}

// Error returns the location and the reason.
func (f *LaunchError) Error() string {
	return fmt.Sprintf("ptx: %s: line %d: thread %v of block %v: %s", f.Kernel, f.Line, f.Thread, f.Block, f.Reason)
}

// Values of cell.writer and cell.reader that do not denote a single thread.
const (
	blockOf       = 1 << 31   // several threads of the block whose number is in the other bits
	severalBlocks = 1<<32 - 1 // threads of several blocks
	atomics       = 1<<32 - 2 // any threads, by atomics only
	noThread      = uint32(0) // other values are the number of a thread plus 1
)

// cell records the last accesses to a unit of memory in a launch, and the barriers of the block
// between which they happened.
type cell struct{ writer, written, reader, read uint32 }

// shadow detects races in a piece of memory.
type shadow struct {
	words, bytes []cell // by unit: four bytes, or one if a byte is accessed alone
	perBlock     uint32 // threads of a block
}

// cells returns the cells of an access.
func (s *shadow) cells(offset, size, total int) []cell {
	if size == 1 {
		if s.bytes == nil {
			s.bytes = make([]cell, total)
		}
		return s.bytes[offset : offset+1]
	}
	if s.words == nil {
		s.words = make([]cell, (total+3)/4)
	}
	return s.words[offset/4 : (offset+size+3)/4]
}

// apart reports whether no barrier separates an earlier access from the current one: the earlier
// one was by another thread, and either in another block or since the last barrier.
func (s *shadow) apart(other, since, me, epoch uint32) bool {
	switch {
	case other == noThread || other == me:
		return false
	case other == severalBlocks || other == atomics:
		return true
	case other&blockOf != 0:
		return other&^blockOf != (me-1)/s.perBlock || since == epoch
	}
	return (other-1)/s.perBlock != (me-1)/s.perBlock || since == epoch
}

// load records a read by thread number me-1, and returns the writer it races with, or noThread.
func (s *shadow) load(c *cell, me, epoch uint32) uint32 {
	if s.apart(c.writer, c.written, me, epoch) {
		return c.writer
	}
	block := (me-1)/s.perBlock | blockOf
	switch {
	case c.reader == noThread || c.reader == me || !s.apart(c.reader, c.read, me, epoch):
		c.reader = me
	case c.reader == block || c.reader&blockOf == 0 && (c.reader-1)/s.perBlock|blockOf == block:
		c.reader = block
	default:
		c.reader = severalBlocks
	}
	c.read = epoch
	return noThread
}

// store records a write, and returns the access it races with, or noThread.
func (s *shadow) store(c *cell, me, epoch uint32) uint32 {
	if s.apart(c.writer, c.written, me, epoch) {
		return c.writer
	}
	if s.apart(c.reader, c.read, me, epoch) {
		return c.reader
	}
	*c = cell{writer: me, written: epoch}
	return noThread
}

// change records an atomic, which does not race with other atomics.
func (s *shadow) change(c *cell, me, epoch uint32) uint32 {
	if c.writer == atomics {
		me = atomics
	}
	if other := s.store(c, me, epoch); other != noThread {
		return other
	}
	c.writer = atomics
	return noThread
}

// piece is memory as a launch accesses it: a region, or the shared memory of the block.
type piece struct {
	Region
	shadow shadow
}

// check checks and records an access of size bytes by a thread. It returns the reason of a
// fault, or "".
func (p *piece) check(offset uint64, size int, kind kind, me, epoch uint32) string {
	at := int(offset)
	if kind == store {
		if p.Written != nil {
			for i := at; i < at+size; i++ {
				p.Written[i] = 1
			}
		}
	} else if p.Written != nil && !written(p.Written[at:at+size]) {
		return "reads memory that was never written"
	}
	cells := p.shadow.cells(at, size, len(p.Data))
	for i := range cells {
		other := noThread
		switch kind {
		case store:
			other = p.shadow.store(&cells[i], me, epoch)
		case atomic:
			other = p.shadow.change(&cells[i], me, epoch)
		default:
			other = p.shadow.load(&cells[i], me, epoch)
		}
		if other != noThread {
			verb := "reads"
			if kind != load {
				verb = "writes"
			}
			return fmt.Sprintf("a race: it %s what %s used, with no barrier between", verb, p.shadow.describe(other))
		}
	}
	return ""
}

// describe describes the other thread of a race.
func (s *shadow) describe(other uint32) string {
	switch {
	case other == severalBlocks:
		return "threads of several blocks"
	case other == atomics:
		return "an atomic"
	case other&blockOf != 0:
		return fmt.Sprintf("several threads of block number %d", other&^blockOf)
	}
	return fmt.Sprintf("thread number %d of block number %d", (other-1)%s.perBlock, (other-1)/s.perBlock)
}

// written reports whether all bytes have been written.
func written(marks []byte) bool {
	if len(marks) == 4 {
		return binary.LittleEndian.Uint32(marks) == 0x01010101
	}
	for _, m := range marks {
		if m == 0 {
			return false
		}
	}
	return true
}

// get and put read and write an element of memory.
func get(data []byte, size uint8, signed bool) uint64 {
	switch size {
	case 1:
		if signed {
			return uint64(uint32(int8(data[0])))
		}
		return uint64(data[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case 4:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

func put(data []byte, size uint8, v uint64) {
	switch size {
	case 1:
		data[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(data, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(data, uint32(v))
	default:
		binary.LittleEndian.PutUint64(data, v)
	}
}
