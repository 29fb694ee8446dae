package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/weir-ml/weir/memory"
)

// Lender is what a device offers so that another device's goroutine can copy from
// its buffers.
type Lender interface {
	// Lend returns a view of exactly the bytes of a buffer. Unlike every other method
	// it may be called from any goroutine, whatever the device is doing meanwhile; it
	// touches no book. Until the reader is done nobody may write or release the buffer,
	// and what writes it must be done before: the sender's Sync sees to that.
	Lend(b Buffer) ([]byte, error)
}

var (
	_ Lender = (*Host)(nil)
	_ Lender = (*Null)(nil)

	_ memory.Receiver[Buffer] = (*Host)(nil)
	_ memory.Receiver[Buffer] = (*Null)(nil)
)

// ErrNoLender is returned by Transfer for a device that is not a [Lender], or that is
// alone (HostConfig.Alone).
var ErrNoLender = errors.New("kernels: the device lends no buffers to others")

// Transfer copies a buffer of src into a new one of dst, which the caller owns: of
// class Transfer, with the same type and number of elements. It belongs to the
// goroutine of dst; that of src may go on with everything but this buffer. After an
// error dst is as it was.
func Transfer(dst, src Device, b Buffer) (Buffer, error) {
	lender, ok := src.(Lender)
	if !ok {
		return Buffer{}, fmt.Errorf("%w: Transfer from a %T", ErrNoLender, src)
	}
	if counted, ok := src.(interface{ lent(more int) }); ok {
		counted.lent(1)
		defer counted.lent(-1)
	}
	data, err := lender.Lend(b)
	if err != nil {
		return Buffer{}, err
	}
	to, err := dst.Alloc(memory.Transfer, b.Type, b.N)
	if err != nil {
		return Buffer{}, err
	}
	switch b.Type {
	case Int32:
		err = dst.WriteInt32(to, elements[int32](data))
	case Uint8:
		err = dst.WriteUint8(to, data)
	default:
		err = dst.WriteFloat32(to, elements[float32](data))
	}
	if err != nil {
		_, _ = dst.Release(to) // The first error is the one to tell.
		return Buffer{}, err
	}
	return to, nil
}

// Receive is Transfer from a device that is the space of another rank.
func (h *Host) Receive(from memory.Space[Buffer], b Buffer) (Buffer, error) {
	return receive(h, from, b)
}

// Receive is Transfer from a device that is the space of another rank. From another Null it copies
// nothing: the processor may not even reach what the target's buffers have.
func (n *Null) Receive(from memory.Space[Buffer], b Buffer) (Buffer, error) {
	src, null := from.(*Null)
	if !null {
		return receive(n, from, b)
	}
	src.table.Lock()
	_, _, err := src.arena.Extent(b.Handle)
	src.table.Unlock()
	if err != nil {
		return Buffer{}, fmt.Errorf("kernels: Receive: %w", err)
	}
	return n.Alloc(memory.Transfer, b.Type, b.N)
}

func receive(to Device, from memory.Space[Buffer], b Buffer) (Buffer, error) {
	src, ok := from.(Device)
	if !ok {
		return Buffer{}, fmt.Errorf("%w: Receive from a %T", ErrNoLender, from)
	}
	return Transfer(to, src, b)
}

// encodedHeader is the size of what Encode writes before the elements: the type in the
// highest byte, and how many.
const (
	encodedHeader = 8
	encodedCount  = 1<<56 - 1
)

// headers are lent to a call each: one on its stack would escape to the reader or writer.
var headers = sync.Pool{New: func() any { return new([encodedHeader]byte) }}

// Size returns how many bytes Encode writes of a buffer.
func (h *Host) Size(b Buffer) int64 { return encodedHeader + int64(b.N)*b.Type.Bytes() }

// Encode writes the type, the number and the bytes of the elements, which are in the order of
// the processor. Like Lend it may be called from any goroutine; see transport.Codec.
func (h *Host) Encode(w io.Writer, b Buffer) error {
	h.lent(1)
	defer h.lent(-1)
	data, err := h.Lend(b)
	if err != nil {
		return err
	}
	header := headers.Get().(*[encodedHeader]byte)
	defer headers.Put(header)
	binary.LittleEndian.PutUint64(header[:], uint64(b.Type)<<56|uint64(b.N))
	if _, err = w.Write(header[:]); err == nil {
		_, err = w.Write(data)
	}
	return err
}

// Decode reads what Encode has written into a new buffer of class Transfer, which the caller
// owns.
func (h *Host) Decode(r io.Reader, size int64) (Buffer, error) {
	header := headers.Get().(*[encodedHeader]byte)
	defer headers.Put(header)
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Buffer{}, err
	}
	said := binary.LittleEndian.Uint64(header[:])
	t, n := DType(said>>56), said&encodedCount
	if t > Uint8 || n > uint64(mostElements) || encodedHeader+int64(n)*t.Bytes() != size {
		return Buffer{}, fmt.Errorf("%w: Decode: %d elements of %s in %d bytes", ErrShape, n, t, size)
	}
	b, err := h.Alloc(memory.Transfer, t, int(n))
	if err != nil {
		return Buffer{}, err
	}
	data, err := h.Lend(b)
	if err == nil {
		_, err = io.ReadFull(r, data)
	}
	if err != nil {
		_, _ = h.Release(b) // The first error is the one to tell.
		return Buffer{}, err
	}
	return b, nil
}
