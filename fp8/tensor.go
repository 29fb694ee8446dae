package fp8

import (
	"errors"
	"fmt"
	"sort"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
)

// Usage selects the halves of a quantized tensor.
type Usage uint8

// The halves of a tensor. Rowwise|Columnwise selects both.
const (
	Rowwise    Usage = 1 << iota // the tensor; blocks that share a scale run along its rows
	Columnwise                   // its transpose; blocks run along the columns of the tensor
)

// String returns the names of the halves.
func (u Usage) String() string {
	if u <= Rowwise|Columnwise {
		return [...]string{"nothing", "rowwise", "columnwise", "rowwise and columnwise"}[u]
	}
	return fmt.Sprintf("usage(%d)", uint8(u))
}

// Errors of tensors. Each includes the name of the tensor.
var (
	// ErrKept is returned if the tensor lacks the requested half, possibly because Keep has
	// released it.
	ErrKept = errors.New("fp8: the tensor does not have this half")
	// ErrTaken is returned if a tensor is used after Save.
	ErrTaken = errors.New("fp8: the tensor was taken")
	// ErrReleased is returned if a tensor is used after its release.
	ErrReleased = errors.New("fp8: the tensor was released")
	// ErrLost is returned by Save for a tensor with both halves: the backward pass needs only one
	// of them, and saving the other would double the saved bytes.
	ErrLost = errors.New("fp8: one half is saved, not two")
)

// MB is a stage's view of one microbatch on a device of kernels. It owns the references of the stage's
// tensors. A failed call ends the step (batchctx.Microbatch).
type MB = batchctx.Microbatch[kernels.Buffer]

// Shape describes a tensor: the name that errors use for it, its numbers of rows and columns, and
// the encoding of both halves.
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

// Half returns the half stored in a buffer, or the zero Quantized for the zero Buffer.
func (s *Shape) Half(u Usage, b kernels.Buffer) kernels.Quantized {
	if b == (kernels.Buffer{}) {
		return kernels.Quantized{}
	}
	rows, cols := s.dimensions(u)
	return kernels.Quantized{Data: b, Encoding: s.Encoding, Rows: rows, Cols: cols}
}

// Bytes returns the size of a half, including its scales.
func (s *Shape) Bytes(u Usage) int { return s.Encoding.Bytes(s.dimensions(u)) }

// fit returns ErrShape unless a half has the given size. If Rows is 0, fit first sets it to the
// greatest number of rows for which the half is not larger. Widths are multiples of 16, so that
// every row adds bytes. If a byte holds two codes, an odd number of rows is rounded up to an even
// one; the additional codes are zeros, which do not change a product.
func (s *Shape) fit(u Usage, bytes int) error {
	if s.Rows == 0 {
		s.Rows = sort.Search(bytes, func(i int) bool {
			more := Shape{Rows: i + 1, Cols: s.Cols, Encoding: s.Encoding}
			return more.Bytes(u) > bytes
		})
	}
	if have := s.Bytes(u); have != bytes {
		return fmt.Errorf("%w: %q: %d bytes were saved, but %d rows of %d have %d", ErrShape, s.Name, bytes, s.Rows, s.Cols, have)
	}
	return nil
}

// Tensor is a matrix in low precision: one buffer for each of its halves, which holds codes and
// scales together, so that no part of a half outlives the rest. A tensor is in one place at a
// time: once Save has moved it, every use of it fails, as after Release. It owns one reference to
// each buffer, through the MB that is passed to its methods. Copies of a Tensor refer to the same
// tensor; only one of them may be used.
type Tensor struct {
	Shape
	rowwise, columnwise kernels.Buffer
	state               state
}

type state uint8

const (
	released state = iota // also the zero Tensor
	whole
	moved
)

// NewTensor returns a tensor with the given buffers and takes ownership of them. The zero Buffer
// omits a half.
func NewTensor(shape Shape, rowwise, columnwise kernels.Buffer) Tensor {
	return Tensor{Shape: shape, rowwise: rowwise, columnwise: columnwise, state: whole}
}

// Take moves a tensor out of the slot that holds its half, which usage names: the slot is released,
// and the caller owns the tensor. If shape.Rows is 0, the number of rows is derived from the size of
// the half. If the size does not match shape, Take releases the half and returns ErrShape.
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

// Usage returns the halves that the tensor still has.
func (t *Tensor) Usage() (u Usage) {
	if t.rowwise != (kernels.Buffer{}) {
		u |= Rowwise
	}
	if t.columnwise != (kernels.Buffer{}) {
		u |= Columnwise
	}
	return u
}

// Buffers returns the buffers of both halves, or the zero Buffer for a missing half.
func (t *Tensor) Buffers() (rowwise, columnwise kernels.Buffer) { return t.rowwise, t.columnwise }

// alive returns an error if the tensor cannot be used.
func (t *Tensor) alive() error {
	switch t.state {
	case released:
		return fmt.Errorf("%w: %q", ErrReleased, t.Name)
	case moved:
		return fmt.Errorf("%w: %q was saved for a later action, which takes it", ErrTaken, t.Name)
	}
	return nil
}

// Rowwise returns the rowwise half, which the tensor still owns.
func (t *Tensor) Rowwise() (kernels.Quantized, error) { return t.get(Rowwise, t.rowwise) }

// Columnwise returns the columnwise half, which the tensor still owns.
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

// Keep releases a half that is not in usage. It returns ErrKept, and releases nothing, if usage is 0
// or a half in usage is missing.
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

// Save moves the tensor's only half to a slot, for the action that takes it. On error the tensor
// is unchanged.
func (t *Tensor) Save(to MB, by batchctx.Consumer, slot batchctx.Slot) error {
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

// Release releases the remaining halves. A second call returns ErrReleased.
func (t *Tensor) Release(mb MB) error {
	if err := t.alive(); err != nil {
		return err
	}
	t.state = released
	drop(mb, &t.rowwise)
	drop(mb, &t.columnwise)
	return nil
}
