package gomlx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/transport"
)

var (
	_ transport.Codec[T] = (*Device)(nil)
	_ memory.Movable[T]  = (*Device)(nil)
)

// ErrEncoding is returned by Decode for bytes that Encode does not write.
var ErrEncoding = errors.New("gomlx: not an encoded tensor")

// maxBytes is the maximum size of an encoded tensor: 256 TiB.
const maxBytes = 1 << 48

// encodedShape returns the bytes that Encode writes before the values: one byte for the type, one
// for the number of dimensions, and the dimensions.
func encodedShape(s shapes.Shape) []byte {
	head := []byte{byte(s.DType), byte(s.Rank())}
	for _, n := range s.Dimensions {
		head = binary.LittleEndian.AppendUint64(head, uint64(n))
	}
	return head
}

// Size returns the number of bytes that Encode writes.
func (d *Device) Size(b T) int64 { return 2 + 8*int64(b.shape.Rank()) + b.bytes }

// Encode writes the shape and the values, in the byte order of the processor. It may be called from
// any goroutine; see transport.Codec.
func (d *Device) Encode(w io.Writer, b T) error {
	flat, err := b.host()
	if err == nil {
		_, err = w.Write(encodedShape(b.shape))
	}
	if err == nil {
		_, err = w.Write(dtypes.UnsafeByteSliceFromAny(flat))
	}
	return err
}

// Decode reads the output of Encode into a new buffer of class Transfer, owned by the caller.
func (d *Device) Decode(r io.Reader, size int64) (T, error) {
	shape, err := decodeShape(r, size)
	if err != nil {
		return nil, err
	}
	if !d.backend.HasSharedBuffers() {
		flat := dtypes.MakeAnySlice(shape.DType, shape.Size())
		if _, err := io.ReadFull(r, dtypes.UnsafeByteSliceFromAny(flat)); err != nil {
			return nil, err
		}
		return d.Put(memory.Transfer, flat, shape)
	}
	b, err := d.share(memory.Transfer, shape)
	if err != nil {
		return nil, err
	}
	flat, err := b.Data()
	if err == nil {
		_, err = io.ReadFull(r, dtypes.UnsafeByteSliceFromAny(flat))
	}
	if err != nil {
		return nil, errors.Join(err, b.Finalize())
	}
	return b, nil
}

// share creates a buffer that the host can access.
func (d *Device) share(class memory.Class, shape shapes.Shape) (T, error) {
	raw, _, err := d.backend.Backend.NewSharedBuffer(0, shape)
	if err != nil {
		return nil, fmt.Errorf("gomlx: %w", err)
	}
	b := d.own(raw, shape, class)
	b.shared = true
	return b, nil
}

// View returns the values as bytes, for a copy to or from far memory (memory.Movable). The backend
// must have buffers that the host can access, as "go" has.
func (d *Device) View(b T) ([]byte, error) {
	if !d.backend.HasSharedBuffers() {
		return nil, fmt.Errorf("gomlx: the host cannot access the buffers of backend %q: do not offload saved state", d.backend.Name())
	}
	flat, err := b.Data()
	if err != nil {
		return nil, err
	}
	return dtypes.UnsafeByteSliceFromAny(flat), nil
}

// Like returns a new buffer of the shape of b, which may have been released.
func (d *Device) Like(class memory.Class, b T) (T, error) { return d.share(class, b.shape) }

// decodeShape reads the shape of an encoding of size bytes.
func decodeShape(r io.Reader, size int64) (shapes.Shape, error) {
	head := make([]byte, 2, 64)
	if _, err := io.ReadFull(r, head); err != nil {
		return shapes.Shape{}, err
	}
	kind, rank := dtypes.DType(head[0]), int(head[1])
	dimensions := make([]int, rank)
	head = append(head, make([]byte, 8*rank)...)
	if _, err := io.ReadFull(r, head[2:]); err != nil {
		return shapes.Shape{}, err
	}
	count, most := uint64(1), 8*uint64(min(max(size, 0), maxBytes)) // each value has at least one bit
	for i := range dimensions {
		n := binary.LittleEndian.Uint64(head[2+8*i:])
		if n > most || n > 0 && count > most/n {
			return shapes.Shape{}, fmt.Errorf("%w: dimension %d is %d, in %d bytes", ErrEncoding, i, n, size)
		}
		dimensions[i] = int(n)
		count *= n
	}
	if int(kind) >= len(dtypes.SupportedDTypes) || !kind.IsSupported() {
		return shapes.Shape{}, fmt.Errorf("%w: type %d", ErrEncoding, head[0])
	}
	shape := shapes.Make(kind, dimensions...)
	if int64(len(head))+shape.ByteSize() != size {
		return shapes.Shape{}, fmt.Errorf("%w: a tensor of %v in %d bytes", ErrEncoding, shape, size)
	}
	return shape, nil
}
