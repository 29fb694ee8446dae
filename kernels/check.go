package kernels

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/weir-ml/weir/memory"
)

// ErrValue is returned by an operation if a number is out of range, such as a dropout
// probability of 1. The operation has written nothing.
var ErrValue = errors.New("kernels: number out of range")

// call is the state of a call to an operation while it opens its buffers. It collects every fault
// in err. An operation proceeds only if err is nil, so an operation that fails has written
// nothing. A [Null] stops at that point, and thus rejects the same calls as a [Host], except
// those with faults in the contents.
type call struct {
	op    string
	arena *memory.Arena
	null  bool // the call computes nothing
	err   error
}

// done reports whether there is nothing to compute.
func (c *call) done() bool { return c.null || c.err != nil }

// fault adds an error that wraps sentinel.
func (c *call) fault(sentinel error, format string, args ...any) {
	c.err = errors.Join(c.err, fmt.Errorf("%w: %s: %s", sentinel, c.op, fmt.Sprintf(format, args...)))
}

// dimensions requires numbers to be positive. names lists their names, separated by spaces.
func (c *call) dimensions(names string, numbers ...int) {
	for i, n := range numbers {
		if n <= 0 {
			c.fault(ErrShape, "%s is %d, want at least 1", strings.Fields(names)[i], n)
		}
	}
}

// number is the type of an element of a buffer.
type number interface{ float32 | int32 | uint8 }

// exactly opens a buffer that must have exactly n elements. Like view, it returns nil after a fault.
func exactly[E number](c *call, name string, b Buffer, n int) []E {
	if b.N != n {
		c.fault(ErrShape, "%s has %d elements, the operation has %d", name, b.N, n)
		return nil
	}
	return view[E](c, name, b)
}

// roomy opens a buffer that must have at least n elements, and returns the first n.
func roomy[E number](c *call, name string, b Buffer, n int) []E {
	if b.N < n {
		c.fault(ErrShape, "%s has %d elements, the operation needs %d", name, b.N, n)
		return nil
	}
	x := view[E](c, name, b)
	return x[:min(n, len(x))]
}

// floats opens a float32 buffer that must have exactly n elements.
func (c *call) floats(name string, b Buffer, n int) []float32 { return exactly[float32](c, name, b, n) }

// optional is like floats, but b may be the zero Buffer, for which it returns nil.
func (c *call) optional(name string, b Buffer, n int) []float32 {
	if b == (Buffer{}) {
		return nil
	}
	return c.floats(name, b, n)
}

// apart requires that the result b shares memory with none of the other buffers.
func (c *call) apart(name string, b Buffer, others ...Buffer) {
	for _, o := range others {
		if b.overlaps(o) {
			c.fault(ErrShape, "%s is written and is also another operand", name)
			return
		}
	}
}

// aligned requires that an operand of an elementwise operation either covers the same elements as
// the result or shares no memory with it.
func (c *call) aligned(result, o operand) {
	if max(result.b.first, 1) != max(o.b.first, 1) && result.b.overlaps(o.b) {
		c.fault(ErrShape, "%s and %s are views that overlap: use the same elements or others", result.name, o.name)
	}
}

// view returns the elements of b in the arena. It returns nil if it added a fault to c, or if
// the call computes nothing.
func view[E number](c *call, name string, b Buffer) []E {
	if want := typeOf[E](); b.Type != want {
		c.fault(ErrShape, "%s is %s, want %s", name, b.Type, want)
		return nil
	}
	var data []byte
	var bytes int64
	var err error
	if c.null {
		_, bytes, err = c.arena.Extent(b.Handle)
	} else {
		data, err = c.arena.Data(b.Handle)
		bytes = int64(len(data))
	}
	var at int64
	if err == nil {
		at, err = b.span(bytes)
	}
	if err != nil {
		c.err = errors.Join(c.err, fmt.Errorf("kernels: %s: %s: %w", c.op, name, err))
		return nil
	}
	if c.null {
		return nil
	}
	x := elements[E](data[at:])
	return x[:b.N:b.N]
}

// typeOf returns the DType of E.
func typeOf[E number]() DType {
	var e E
	switch any(e).(type) {
	case int32:
		return Int32
	case uint8:
		return Uint8
	}
	return Float32
}

// elements converts the bytes of a buffer to elements.
func elements[E number](data []byte) []E {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(e)))
}

// size multiplies dimensions. On overflow it returns the largest int, a size that no buffer has.
func size(a, b int) int {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}
