package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/weir-ml/weir/memory"
)

// Lender is implemented by a device whose buffers another device's goroutine can copy.
type Lender interface {
	// Lend returns a view of exactly a buffer's bytes. Unlike every other method, it may be
	// called from any goroutine, concurrently with any use of the device; it does not change the
	// books. Earlier writes must have completed, which the sender's Sync ensures, and until the
	// reader is done the buffer must be neither written nor released.
	Lend(b Buffer) ([]byte, error)
}

var (
	_ Lender = (*Host)(nil)
	_ Lender = (*Null)(nil)

	_ memory.Receiver[Buffer] = (*Host)(nil)
	_ memory.Receiver[Buffer] = (*Null)(nil)
	_ memory.Movable[Buffer]  = (*Host)(nil)
)

// ErrNoLender is returned by Transfer, and by the methods that use Lend, if the source is not a
// [Lender], or was made with HostConfig.Alone.
var ErrNoLender = errors.New("kernels: the device lends no buffers to others")

// Transfer copies a buffer of src to a new buffer of dst, owned by the caller, of class Transfer
// and with the same type and number of elements. It must be called on dst's goroutine. Meanwhile
// src's goroutine may use everything but this buffer. After an error dst has no new buffer.
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
		_, _ = dst.Release(to) // the first error is reported
		return Buffer{}, err
	}
	return to, nil
}

// View returns the bytes of a buffer for a copy on another goroutine ([memory.Movable]). Unlike
// Lend, it must be called on the device's goroutine, and works even with HostConfig.Alone.
func (h *Host) View(b Buffer) ([]byte, error) { return h.data(b) }

// Like returns a new buffer with the same type and number of elements as b, whose memory may have
// been released.
func (h *Host) Like(class memory.Class, b Buffer) (Buffer, error) { return h.Alloc(class, b.Type, b.N) }

// Receive is Transfer from a device given as the space of another rank.
func (h *Host) Receive(from memory.Space[Buffer], b Buffer) (Buffer, error) {
	return receive(h, from, b)
}

// Receive is Transfer from a device given as the space of another rank. From another Null it
// copies nothing: the processor may not even be able to reach the memory of the target's
// buffers.
func (n *Null) Receive(from memory.Space[Buffer], b Buffer) (Buffer, error) {
	src, null := from.(*Null)
	if !null {
		return receive(n, from, b)
	}
	src.table.Lock()
	_, bytes, err := src.arena.Extent(b.Handle)
	src.table.Unlock()
	if err == nil {
		_, err = b.span(bytes)
	}
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

// encodedHeader is the size in bytes of the header that Encode writes before the elements. The
// header is a number in little-endian order: the type in its highest byte, and the number of
// elements, at most encodedCount, in the others.
const (
	encodedHeader = 8
	encodedCount  = 1<<56 - 1
)

// headers holds reusable headers: a local header would escape to the heap through the reader or
// writer.
var headers = sync.Pool{New: func() any { return new([encodedHeader]byte) }}

// Size returns the number of bytes that Encode writes for a buffer.
func (h *Host) Size(b Buffer) int64 { return encodedHeader + int64(b.N)*b.Type.Bytes() }

// Encode writes the type, the number and the bytes of the elements, in the processor's byte
// order. Like Lend, it may be called from any goroutine; see transport.Codec.
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

// Decode reads the size bytes that Encode has written into a new buffer of class Transfer, owned by
// the caller. It returns ErrShape if the header does not match size.
func (h *Host) Decode(r io.Reader, size int64) (Buffer, error) {
	header := headers.Get().(*[encodedHeader]byte)
	defer headers.Put(header)
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Buffer{}, err
	}
	head := binary.LittleEndian.Uint64(header[:])
	t, n := DType(head>>56), head&encodedCount
	if t > Uint8 || n > uint64(maxElements) || encodedHeader+int64(n)*t.Bytes() != size {
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
		_, _ = h.Release(b) // the first error is reported
		return Buffer{}, err
	}
	return b, nil
}
