package safetensors

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// DType is an element type, as spelled in the header.
type DType string

// The element types that this package converts from and to Go slices.
const (
	U8  DType = "U8"
	I32 DType = "I32"
	F32 DType = "F32"
	I64 DType = "I64"
)

// dtypes are the element types of whole bytes, in the format's order of increasing alignment.
// Tensors are stored in the reverse of this order, so that each is aligned. The format's types
// of 4 and 6 bits are not supported.
var dtypes = []struct {
	name DType
	size int
}{
	{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1},
	{"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
	{"I32", 4}, {"U32", 4}, {"F32", 4},
	{"C64", 8}, {"F64", 8}, {"I64", 8}, {"U64", 8},
}

// rank returns the position of d in dtypes, or -1.
func (d DType) rank() int {
	for i := range dtypes {
		if dtypes[i].name == d {
			return i
		}
	}
	return -1
}

// Size returns the size of one element in bytes, or 0 for a type that is not supported.
func (d DType) Size() int {
	if i := d.rank(); i >= 0 {
		return dtypes[i].size
	}
	return 0
}

// byteSize returns the size in bytes of a tensor whose dimensions are not negative. It returns
// false if the product of any leading dimensions, in bytes, exceeds an int64.
func byteSize(d DType, shape []int) (int64, bool) {
	n := uint64(d.Size())
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		n = lo
	}
	return int64(n), true
}

// Element is a Go type that a tensor's values can be converted from and to.
type Element interface {
	float32 | int32 | int64 | uint8
}

func dtypeOf[T Element]() DType {
	switch any(T(0)).(type) {
	case float32:
		return F32
	case int32:
		return I32
	case int64:
		return I64
	default:
		return U8
	}
}

// encode fills b, whose length is a whole number of elements, with the first elements of src.
func encode[T Element](b []byte, src []T) {
	n := len(b) / dtypeOf[T]().Size()
	_, _ = binary.Encode(b, binary.LittleEndian, src[:n]) // they have the size of b
}

// decode is the inverse of encode. b has the size of dst.
func decode[T Element](dst []T, b []byte) {
	_, _ = binary.Decode(b, binary.LittleEndian, dst)
}
