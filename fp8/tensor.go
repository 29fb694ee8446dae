package fp8

import (
	"errors"
	"fmt"
	"sort"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
)

// Usage is what a quantized tensor is for: which of its two halves there are.
type Usage uint8

// The halves of a tensor. Both are Rowwise|Columnwise.
const (
	Rowwise    Usage = 1 << iota // as it is, scaled along its columns
	Columnwise                   // its transpose, scaled along its rows
)

// String returns the names of the halves.
func (u Usage) String() string {
	if u <= Rowwise|Columnwise {
		return [...]string{"nothing", "rowwise", "columnwise", "rowwise and columnwise"}[u]
	}
	return fmt.Sprintf("usage(%d)", uint8(u))
}

// Errors of tensors. Each names the tensor.
var (
	// ErrKept is returned for a half that the tensor does not have, or not any more:
	// another one was kept.
	ErrKept = errors.New("fp8: the tensor does not have this half")
	// ErrTaken is returned for the use of a tensor that was saved.
	ErrTaken = errors.New("fp8: the tensor was taken")
	// ErrReleased is returned for the use of a tensor after its release.
	ErrReleased = errors.New("fp8: the tensor was released")
	// ErrLost is returned for saving a tensor with both its halves: one of them is what a
	// backward needs, and the other doubles what is kept.
	ErrLost = errors.New("fp8: one half is saved, not two")
)

// MB is the view of a stage over buffers of a device, which owns the references of its
// tensors. A call that it refuses ends the step (batchctx.Microbatch).
type MB = batchctx.Microbatch[kernels.Buffer]

// Shape says what a tensor is: what it is called in errors, how many rows and columns it
// has, and how each half is stored.
type Shape struct {
	Name       string
	Rows, Cols int
	Encoding   kernels.Encoding
}

// dimensions returns the rows and columns of a half.
func (s *Shape) dimensions(u Usage) (rows, cols int) {
	if u == Columnwise {
		return s.Cols, s.Rows
	}
	return s.Rows, s.Cols
}

// Half returns a half in a buffer, and none in none.
func (s *Shape) Half(u Usage, b kernels.Buffer) kernels.Quantized {
	if b == (kernels.Buffer{}) {
		return kernels.Quantized{}
	}
	rows, cols := s.dimensions(u)
	return kernels.Quantized{Data: b, Encoding: s.Encoding, Rows: rows, Cols: cols}
}

// Bytes returns the size of a half, codes and scales.
func (s *Shape) Bytes(u Usage) int { return s.Encoding.Bytes(s.dimensions(u)) }

// fit finds the greatest number of rows by which a half has so many bytes: widths are
// whole numbers of 16, so that every row adds some. If a byte has two codes an odd
// number is taken for the even one above it; what that adds are zeros, and to a product
// nothing.
func (s *Shape) fit(u Usage, bytes int) error {
	if s.Rows == 0 {
		s.Rows = sort.Search(bytes, func(i int) bool {
			more := Shape{Rows: i + 1, Cols: s.Cols, Encoding: s.Encoding}
			return more.Bytes(u) > bytes
		})
	}
	if have := s.Bytes(u); have != bytes {
		return fmt.Errorf("%w: %q: %d bytes were saved where %d rows of %d have %d", ErrShape, s.Name, bytes, s.Rows, s.Cols, have)
	}
	return nil
}

// Tensor is a matrix in low precision: one buffer for each of its halves, codes and
// scales together, so that nothing of a half outlives the rest of it. A tensor is in one
// place: Save moves it, and what is left of it then refuses everything, as it does after
// Release. It owns one reference to each buffer, through the MB that it is given.
// Copies of a Tensor are the same tensor and must not be used along with it.
type Tensor struct {
	Shape
	rowwise, columnwise kernels.Buffer
	state               state
}

type state uint8

const (
	released state = iota // the zero Tensor, too
	whole
	moved
)

// NewTensor returns a tensor of the given buffers, which it takes over; none stands for a half
// that is not wanted.
func NewTensor(shape Shape, rowwise, columnwise kernels.Buffer) Tensor {
	return Tensor{Shape: shape, rowwise: rowwise, columnwise: columnwise, state: whole}
}

// Take moves the tensor whose half is in a slot out of it: the slot is released, and the tensor
// is the caller's. If shape has no rows they follow from the size of what was saved.
func Take(from MB, slot batchctx.Slot, shape Shape, usage Usage) (Tensor, error) {
	b := from.Move(slot)
	if err := shape.fit(usage, b.N); err != nil {
		from.Release(b)
		return Tensor{}, err
	}
	t := Tensor{Shape: shape, state: whole}
	if usage == Columnwise {
		t.columnwise = b
	} else {
		t.rowwise = b
	}
	return t, nil
}

// Usage returns the halves that there are.
func (t *Tensor) Usage() (u Usage) {
	if t.rowwise != (kernels.Buffer{}) {
		u |= Rowwise
	}
	if t.columnwise != (kernels.Buffer{}) {
		u |= Columnwise
	}
	return u
}

// Buffers returns the buffers of both halves, none where there is no such half.
func (t *Tensor) Buffers() (rowwise, columnwise kernels.Buffer) { return t.rowwise, t.columnwise }

// alive returns why the tensor cannot be used, or nil.
func (t *Tensor) alive() error {
	switch t.state {
	case released:
		return fmt.Errorf("%w: %q", ErrReleased, t.Name)
	case moved:
		return fmt.Errorf("%w: %q was saved for a later action, which takes it", ErrTaken, t.Name)
	}
	return nil
}

// Rowwise returns the tensor as it is, scaled along its columns. It is borrowed.
func (t *Tensor) Rowwise() (kernels.Quantized, error) { return t.get(Rowwise, t.rowwise) }

// Columnwise returns the transpose, scaled along the rows of the tensor. It is borrowed.
func (t *Tensor) Columnwise() (kernels.Quantized, error) { return t.get(Columnwise, t.columnwise) }

func (t *Tensor) get(u Usage, b kernels.Buffer) (kernels.Quantized, error) {
	if err := t.alive(); err != nil {
		return kernels.Quantized{}, err
	}
	if b == (kernels.Buffer{}) {
		return kernels.Quantized{}, t.lacks(u)
	}
	return t.Half(u, b), nil
}

func (t *Tensor) lacks(u Usage) error {
	return fmt.Errorf("%w: %q has %v, not %v: quantize or keep what is used later", ErrKept, t.Name, t.Usage(), u)
}

// Keep releases the half that is not in usage, at once. A half that is wanted and not
// there is ErrKept.
func (t *Tensor) Keep(mb MB, usage Usage) error {
	if err := t.alive(); err != nil {
		return err
	}
	if usage == 0 || t.Usage()&usage != usage {
		return t.lacks(usage)
	}
	if usage&Rowwise == 0 {
		drop(mb, &t.rowwise)
	}
	if usage&Columnwise == 0 {
		drop(mb, &t.columnwise)
	}
	return nil
}

// drop releases a half.
func drop(mb MB, half *kernels.Buffer) {
	b := *half
	*half = kernels.Buffer{}
	if b != (kernels.Buffer{}) {
		mb.Release(b)
	}
}

// Save moves the one half that there is to a slot, for the action that takes it. If it
// fails the tensor is as it was.
func (t *Tensor) Save(to MB, by batchctx.Taker, slot batchctx.Slot) error {
	if err := t.alive(); err != nil {
		return err
	}
	b := t.rowwise
	switch {
	case t.Usage() == Rowwise|Columnwise:
		return fmt.Errorf("%w: %q: Keep the one that is used later", ErrLost, t.Name)
	case t.Usage() == Columnwise:
		b = t.columnwise
	}
	to.SaveFor(by, slot, b)
	t.rowwise, t.columnwise, t.state = kernels.Buffer{}, kernels.Buffer{}, moved
	return nil
}

// Release releases the halves that are left. A second time is ErrReleased.
func (t *Tensor) Release(mb MB) error {
	if err := t.alive(); err != nil {
		return err
	}
	t.state = released
	drop(mb, &t.rowwise)
	drop(mb, &t.columnwise)
	return nil
}
