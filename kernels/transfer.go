package kernels

import (
	"errors"
	"fmt"

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
