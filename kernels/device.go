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
	Uint8 // the codes and scales of quantized matrices ([Quantized])
)

// Bytes returns the size of one element in bytes.
func (t DType) Bytes() int64 {
	if t == Uint8 {
		return 1
	}
	return 4
}

// String returns the type's name in lower case.
func (t DType) String() string {
	if t <= Uint8 {
		return [...]string{"float32", "int32", "uint8"}[t]
	}
	return "dtype(?)"
}

// ErrShape is returned by an operation if its buffers do not fit its dimensions or element
// types. The operation has written nothing.
var ErrShape = errors.New("kernels: buffers do not fit the operation")

// Buffer is a handle to N elements in a device's arena. The zero Buffer refers to no memory.
// Buffers are comparable values.
//
// A Buffer may be a view of a part of another buffer (Device.Slice). A view is an operand like
// any other, but has no reference of its own: it is valid as long as the other buffer is.
type Buffer struct {
	Handle memory.Handle
	Type   DType
	N      int
	first  int // in a view, 1 + the index of its first element in the handle's memory; otherwise 0
}

// Device is the base of every device: it owns memory and accounts for it. It is not safe for
// concurrent use, with the exceptions that [Lender] describes. Release (from memory.Space)
// releases a plain reference.
type Device interface {
	memory.Space[Buffer]
	memory.Book
	memory.Reclaimer

	// Name returns the kind of device, such as "host".
	Name() string
	// Alloc returns a buffer of n elements, owned by the caller. Its contents are undefined. A
	// buffer of 0 elements takes one byte.
	Alloc(class memory.Class, t DType, n int) (Buffer, error)
	// AllocIn returns a buffer of class memory.Resident in the pages of a scope. n is at least 1.
	// Alloc with that class is equivalent to AllocIn with memory.Weights.
	AllocIn(scope memory.Scope, t DType, n int) (Buffer, error)
	// Slice returns a view of the n elements of a buffer, or of a view, that start at element
	// first. [Buffers] has this method.
	Slice(b Buffer, first, n int) (Buffer, error)
	// WriteFloat32, WriteInt32 and WriteUint8 copy src to the start of dst.
	WriteFloat32(dst Buffer, src []float32) error
	WriteInt32(dst Buffer, src []int32) error
	WriteUint8(dst Buffer, src []uint8) error
	// ReadFloat32, ReadInt32 and ReadUint8 wait for queued work and copy len(dst)
	// elements from the start of src.
	ReadFloat32(dst []float32, src Buffer) error
	ReadInt32(dst []int32, src Buffer) error
	ReadUint8(dst []uint8, src Buffer) error
	// Sync waits for all queued work to finish.
	Sync() error
	// Close returns all memory to the system and makes every handle stale.
	Close() error
}

// Addressable is a device whose float32 elements a program can read and write as slices. A stage
// that accepts it can compute on a [Host] and be recorded on a [Null].
type Addressable interface {
	Compute
	// Floats returns a new buffer of a class with the given elements, owned by the caller.
	Floats(class memory.Class, x ...float32) (Buffer, error)
	// Float32s returns the elements of a float32 buffer, for reading and writing.
	Float32s(b Buffer) []float32
}

// Operations combines all groups of operations.
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
