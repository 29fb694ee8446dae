package kernels

import (
	"errors"

	"github.com/weir-ml/weir/memory"
)

// DType is the element type of a buffer.
type DType uint8

// The element types.
const (
	Float32 DType = iota
	Int32
	Uint8 // codes and scales of quantized matrices ([Quantized])
)

// Bytes returns the size of one element in bytes.
func (t DType) Bytes() int64 {
	if t == Uint8 {
		return 1
	}
	return 4
}

// String returns the name in lower case.
func (t DType) String() string {
	switch t {
	case Float32:
		return "float32"
	case Int32:
		return "int32"
	case Uint8:
		return "uint8"
	}
	return "dtype(?)"
}

// ErrShape is returned by an operation whose buffers do not fit its dimensions
// or element types. Nothing was written.
var ErrShape = errors.New("kernels: buffers do not fit the operation")

// Buffer is a handle to N elements in a device's arena. The zero Buffer is
// none. Buffers are values and comparable.
type Buffer struct {
	Handle memory.Handle
	Type   DType
	N      int
}

// Device is the base of every device: it owns memory and counts it. It is not
// for concurrent use, but for what [Lender] says. Release (of memory.Space) releases a
// plain reference.
type Device interface {
	memory.Space[Buffer]
	memory.Book
	memory.Reclaimer

	// Name says what the device is, such as "host".
	Name() string
	// Alloc returns a buffer of n elements that the caller owns. Its content is
	// undefined. n must be positive.
	Alloc(class memory.Class, t DType, n int) (Buffer, error)
	// AllocIn returns a buffer of class memory.Resident on pages of a scope. Alloc of that
	// class is AllocIn of memory.Weights.
	AllocIn(scope memory.Scope, t DType, n int) (Buffer, error)
	// WriteFloat32, WriteInt32 and WriteUint8 copy src to the start of dst.
	WriteFloat32(dst Buffer, src []float32) error
	WriteInt32(dst Buffer, src []int32) error
	WriteUint8(dst Buffer, src []uint8) error
	// ReadFloat32, ReadInt32 and ReadUint8 wait for queued work and copy len(dst)
	// elements from the start of src.
	ReadFloat32(dst []float32, src Buffer) error
	ReadInt32(dst []int32, src Buffer) error
	ReadUint8(dst []uint8, src Buffer) error
	// Sync waits until all queued work is done.
	Sync() error
	// Close gives all memory back to the system. Every handle is stale afterwards.
	Close() error
}

// Addressable is a device whose floats a program reads and writes as slices. A stage that takes
// it computes on a [Host] and is recorded on a [Null].
type Addressable interface {
	Compute
	// Floats returns a new buffer of a class with these elements, which the caller owns.
	Floats(class memory.Class, x ...float32) (Buffer, error)
	// Float32s returns the elements of a buffer of float32, to read and to write.
	Float32s(b Buffer) []float32
}

// Operations are all groups of operations.
type Operations interface {
	Elementwise
	Matrix
	Norm
	Activation
	Attention
	Embedding
	CrossEntropy
	Random
	Optimizer
	Quantization
}

// Compute is a device with every group of operations.
type Compute interface {
	Device
	Operations
}
