package kernels

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/weir-ml/weir/memory"
)

// ErrValue is returned by an operation for a number out of its range, such as a
// dropout probability of 1. Nothing was written.
var ErrValue = errors.New("kernels: number out of range")

// call is one call of an operation while it opens its buffers. Every fault is
// kept in err; an operation goes on only where there is none, so one that
// refuses has written nothing. [Host] and [Null] open with the same functions,
// so they refuse the same calls.
type call struct {
	op    string
	arena *memory.Arena
	err   error
}

// fault adds an error that wraps sentinel.
func (c *call) fault(sentinel error, format string, args ...any) {
	c.err = errors.Join(c.err, fmt.Errorf("%w: %s: %s", sentinel, c.op, fmt.Sprintf(format, args...)))
}

// dimension demands that n is positive.
func (c *call) dimension(name string, n int) {
	if n <= 0 {
		c.fault(ErrShape, "%s is %d, want at least 1", name, n)
	}
}

// floats opens a buffer that must have exactly n elements of float32.
func (c *call) floats(name string, b Buffer, n int) []float32 {
	if b.N != n {
		c.fault(ErrShape, "%s has %d elements, the operation has %d", name, b.N, n)
		return nil
	}
	return view[float32](c, name, b, Float32)
}

// optional is floats for a buffer that may be none, and then is nil.
func (c *call) optional(name string, b Buffer, n int) []float32 {
	if b == (Buffer{}) {
		return nil
	}
	return c.floats(name, b, n)
}

// roomy opens a buffer that must have n elements of float32 or more, and
// returns the first n.
func (c *call) roomy(name string, b Buffer, n int) []float32 {
	if b.N < n {
		c.fault(ErrShape, "%s has %d elements, the operation needs %d", name, b.N, n)
		return nil
	}
	x := view[float32](c, name, b, Float32)
	return x[:min(n, len(x))]
}

// ints opens a buffer that must have exactly n elements of int32.
func (c *call) ints(name string, b Buffer, n int) []int32 {
	if b.N != n {
		c.fault(ErrShape, "%s has %d elements, the operation has %d", name, b.N, n)
		return nil
	}
	return view[int32](c, name, b, Int32)
}

// roomyInts is roomy for int32.
func (c *call) roomyInts(name string, b Buffer, n int) []int32 {
	if b.N < n {
		c.fault(ErrShape, "%s has %d elements, the operation needs %d", name, b.N, n)
		return nil
	}
	x := view[int32](c, name, b, Int32)
	return x[:min(n, len(x))]
}

// bytes opens a buffer that must have exactly n elements of uint8.
func (c *call) bytes(name string, b Buffer, n int) []uint8 {
	if b.N != n {
		c.fault(ErrShape, "%s has %d elements, the operation has %d", name, b.N, n)
		return nil
	}
	return view[uint8](c, name, b, Uint8)
}

// roomyBytes is roomy for uint8.
func (c *call) roomyBytes(name string, b Buffer, n int) []uint8 {
	if b.N < n {
		c.fault(ErrShape, "%s has %d elements, the operation needs %d", name, b.N, n)
		return nil
	}
	x := view[uint8](c, name, b, Uint8)
	return x[:min(n, len(x))]
}

// apart demands that the result b shares its memory with none of the others.
func (c *call) apart(name string, b Buffer, others ...Buffer) {
	for _, o := range others {
		if o.Handle == b.Handle && b != (Buffer{}) {
			c.fault(ErrShape, "%s is written and is also another operand", name)
			return
		}
	}
}

// view returns the elements of b in the arena, nil with a fault kept in c where
// there is none.
func view[E float32 | int32 | uint8](c *call, name string, b Buffer, want DType) []E {
	if b.Type != want {
		c.fault(ErrShape, "%s is %s, want %s", name, b.Type, want)
		return nil
	}
	data, err := c.arena.Data(b.Handle)
	if err != nil {
		c.err = errors.Join(c.err, fmt.Errorf("kernels: %s: %s: %w", c.op, name, err))
		return nil
	}
	x := elements[E](data)
	if len(x) != b.N || len(x) == 0 {
		c.fault(ErrShape, "%s says %d elements, its memory has %d", name, b.N, len(x))
		return nil
	}
	return x
}

// elements returns the bytes of a buffer as elements.
func elements[E float32 | int32 | uint8](data []byte) []E {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(e)))
}

// size multiplies dimensions. What does not fit an int becomes the largest int,
// which no buffer has.
func size(a, b int) int {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}
