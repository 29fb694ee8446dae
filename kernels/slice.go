package kernels

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// ErrView is returned by calls that change a buffer's references, and by Hash, if the buffer is a
// view, which has no reference of its own. Pass the buffer that was sliced instead.
var ErrView = errors.New("kernels: a view has no reference of its own")

// unreferenced returns the error for a call on a view.
func (b Buffer) unreferenced(call string) error {
	return fmt.Errorf("%w: %s of a view of %d elements from element %d: call it with the whole buffer", ErrView, call, b.N, b.first-1)
}

// span returns the offset of the buffer's first byte in its handle's memory, whose size is given
// in bytes. It returns ErrShape if the buffer does not fit that memory.
func (b Buffer) span(bytes int64) (int64, error) {
	size := b.Type.Bytes()
	at, n := int64(max(b.first-1, 0))*size, int64(b.N)*size
	if b.N < 0 || (b.first == 0 && max(n, 1) != bytes) || at > bytes-n {
		return 0, fmt.Errorf("%w: the buffer is a handle to %d elements of %s from element %d, its memory has %d bytes", ErrShape, b.N, b.Type, max(b.first-1, 0), bytes)
	}
	return at, nil
}

// overlaps reports whether two buffers share memory.
func (b Buffer) overlaps(o Buffer) bool {
	if b.Handle != o.Handle || b == (Buffer{}) {
		return false
	}
	if b.first == 0 || o.first == 0 {
		return true
	}
	size, other := b.Type.Bytes(), o.Type.Bytes()
	return int64(b.first-1)*size < int64(o.first-1+o.N)*other && int64(o.first-1)*other < int64(b.first-1+b.N)*size
}

// data returns the bytes of a buffer.
func (h *host) data(b Buffer) ([]byte, error) {
	data, err := h.arena.Data(b.Handle)
	if err != nil {
		return nil, err
	}
	at, err := b.span(int64(len(data)))
	if err != nil {
		return nil, err
	}
	end := at + int64(b.N)*b.Type.Bytes()
	return data[at:end:end], nil
}

// Elements returns the number of elements of a buffer.
func (h *host) Elements(b Buffer) int { return b.N }

// TypeName returns the name of the element type of a buffer.
func (h *host) TypeName(b Buffer) string { return b.Type.String() }

// Slice returns a view of the n elements of a live buffer, or of a view, that start at element
// first. It returns ErrShape if n is 0 or b does not have these elements.
func (s *space) Slice(b Buffer, first, n int) (Buffer, error) {
	if _, _, err := s.arena.Extent(b.Handle); err != nil {
		return Buffer{}, fmt.Errorf("kernels: Slice: %w", err)
	}
	if first < 0 || n < 1 || n > b.N-first {
		return Buffer{}, fmt.Errorf("%w: Slice of %d elements from element %d, the buffer has %d", ErrShape, n, first, b.N)
	}
	return Buffer{Handle: b.Handle, Type: b.Type, N: n, first: max(b.first, 1) + first}, nil
}

// New returns a new buffer of n elements with the type of like, owned by the caller.
func (h *Host) New(class memory.Class, like Buffer, n int) (Buffer, error) {
	return h.Alloc(class, like.Type, n)
}

// New returns a buffer as the target would and records it.
func (n *Null) New(class memory.Class, like Buffer, count int) (Buffer, error) {
	return n.Alloc(class, like.Type, count)
}

// Parts returns the number of partial sums of squares that SumSquares adds for n elements: 64, or
// 1 if n is small.
func (h *host) Parts(n int) int {
	if n < squareParts*partElements/8 {
		return 1
	}
	return squareParts
}

// Bound returns the index of a part's first element when n elements are divided into parts. For
// part Parts(n) it returns n.
func (h *host) Bound(n, part int) int {
	if part == h.Parts(n) {
		return n
	}
	return partBound(n, part)
}

// partBound is Bound for a long buffer.
func partBound(n, part int) int {
	begin, _ := share(n, 16, part, squareParts)
	return begin
}

// PartSquares stores the sums of squares of len(sums) consecutive parts, the first of which is
// number part. g holds exactly the elements of these parts, out of n. The result of SumSquares on
// all n elements is the sum over all parts, added in order starting from 0.
func (h *host) PartSquares(sums []float64, g Buffer, n, part int) error {
	if parts := h.Parts(n); n < 1 || part < 0 || len(sums) > parts-part {
		return fmt.Errorf("%w: PartSquares: parts %d to %d of %d elements, which have parts 0 to %d", ErrShape, part, part+len(sums)-1, n, parts-1)
	}
	return h.squares("PartSquares", sums, g, n, part)
}

func (h *host) squares(op string, sums []float64, g Buffer, n, part int) error {
	c := h.call(op)
	x := c.floats("x", g, h.Bound(n, part+len(sums))-h.Bound(n, part))
	switch {
	case c.err != nil:
		return c.err
	case c.null:
		clear(sums)
	case h.Parts(n) == 1:
		sums[0] = h.vector.Squares(x, 0)
	default:
		t := &h.operations.squares
		t.x, t.n, t.first = x, n, part
		h.run(t, len(sums))
		copy(sums, t.sums[:])
		t.x = nil
	}
	return nil
}
