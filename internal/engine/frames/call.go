package frames

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
)

// StageCall is the stage call in progress. Package batchctx checks the rules of a call; the methods here
// update the frames and their book.
type StageCall[T any] struct {
	Frames     *Frames[T]
	Declared   *Declaration[T]
	Kind       Call
	Microbatch int     // its number in the plan
	BatchIndex int     // its position in the replica's batch
	Access     *Access // the stage's access, or &narrowed
	stage      *stage[T]
	frame      *frame[T]
	narrowed   Access
	discarded  string // the first slot whose tensor the call released because no action takes it
}

// Access is the set of the stage's slots, reads, losses, parameters and copies of weights that a call may
// reach. A decorator gives each child its own set, numbered from 0. A child with Discard saves nothing: its
// saved tensors are released immediately. A child with Frozen has no W: its backward takes the tensors saved
// for W. batchctx.Access has the same fields.
type Access struct {
	Slots, Reads, Losses, Params, Copies Range
	Pass                                 Pass
	Discard, Frozen                      bool
}

// Range is a range of Count consecutive numbers that starts at First.
type Range struct{ First, Count int }

// Sub returns the range of count numbers that starts at offset first in r.
func (r Range) Sub(first, count int) Range { return Range{r.First + first, count} }

// Clip returns the numbers of r that are also in own, which starts at 0. It returns an empty range
// if r starts outside own.
func (r Range) Clip(own Range) Range {
	if r.First < 0 || r.First > own.Count {
		return Range{}
	}
	return Range{r.First, min(r.Count, own.Count-r.First)}
}

// At maps number i of a child to the stage's number, and reports whether i is in the child's range.
func (r Range) At(i int) (int, bool) { return r.First + i, i >= 0 && i < r.Count }

// SetAccess narrows the call's access to a, limited to what the stage itself may access.
func (c *StageCall[T]) SetAccess(a Access) {
	own := &c.stage.access
	a.Slots, a.Reads = a.Slots.Clip(own.Slots), a.Reads.Clip(own.Reads)
	a.Losses, a.Params = a.Losses.Clip(own.Losses), a.Params.Clip(own.Params)
	a.Copies = a.Copies.Clip(own.Copies)
	c.narrowed = a
	c.Access = &c.narrowed
}

// Part returns a part of the microbatch's entry, and whether the rank still holds it.
func (c *StageCall[T]) Part(part int) (h T, alive bool) {
	f := c.Frames
	cell := f.part(c.BatchIndex, part)
	return cell.Handle, cell.Held() && f.entryOwners[c.BatchIndex&f.entryMask] == c.Microbatch
}

// Slot returns a slot of the stage's frame, or nil if the frame has been closed.
func (c *StageCall[T]) Slot(slot int) *Cell[T] {
	if !c.frame.open || c.frame.microbatch != c.Microbatch {
		return nil
	}
	return &c.frame.slots[slot]
}

// WeightCopy returns the cell of one of the stage's weight copies.
func (c *StageCall[T]) WeightCopy(n int) *Cell[T] { return &c.stage.copies[n] }

// Loss returns the state of one of the stage's losses.
func (c *StageCall[T]) Loss(loss int) *LossState { return &c.stage.losses[loss] }

// DigestLoss adds the numbers of a loss to LossDigest.
func (c *StageCall[T]) DigestLoss(sums, weights []float64) {
	for _, list := range [...][]float64{sums, weights} {
		for _, x := range list {
			Digest(c.Frames.LossDigest, math.Float64bits(x))
		}
	}
}

// Digest adds a value to a digest, which depends on the order of the values and is never 0.
func Digest(sum *uint64, value uint64) {
	*sum = bits.RotateLeft64(*sum^value, 23)*0x9e3779b97f4a7c15 | 1
}

// Grad returns the gradient to which the stage adds for a use of a parameter.
func (c *StageCall[T]) Grad(param int) T { return c.Frames.Grad(c.Frames.account.running.stage, param) }

// Reduced reports whether the reduction of the stage's gradients has begun.
func (c *StageCall[T]) Reduced() bool { return c.stage.reduced }

// Weight returns the weight with which the stage computes for a use of a parameter, and notes that the
// stage has asked for it.
func (c *StageCall[T]) Weight(param int) T {
	c.stage.uses[param].Asked = true
	return c.stage.weight(param)
}

// Param returns the state of the stage's use of a parameter.
func (c *StageCall[T]) Param(param int) *ParamState { return &c.stage.uses[param] }

// Discard releases a tensor that no action takes. The call may have discarded the same tensor before, for
// another slot.
func (c *StageCall[T]) Discard(slot string, h T) error {
	_, err := c.Frames.Config.Space.Release(h)
	if c.discarded != "" && errors.Is(err, memory.ErrStale) {
		return nil
	}
	if err == nil && c.discarded == "" {
		c.discarded = slot
	}
	return err
}

// explain adds the cause to the error of a call that used a tensor after Discard had released it.
// It returns other errors unchanged.
func (c *StageCall[T]) explain(err error) error {
	if c.discarded == "" || !errors.Is(err, memory.ErrStale) {
		return err
	}
	return fmt.Errorf("%w; in this pass no action takes what is saved in slot %q, so Save released it: use a tensor before Save, or Retain it", err, c.discarded)
}

// Drop empties a cell during the call.
func (c *StageCall[T]) Drop(cell *Cell[T], place effects.BufferKind) error {
	return c.Frames.drop(cell, c.Frames.account.running.stage, place)
}

// DropEarly empties a slot before its action ends. If the buffer is not freed, it records no suspect, because
// the stage may release its own reference later in the call: UpdateExcess finds the leak. Without an
// allocator's book, UpdateExcess cannot find the leak, so the suspect stays.
func (c *StageCall[T]) DropEarly(slot *Cell[T]) error {
	noticed := c.Frames.account.suspect
	err := c.Drop(slot, effects.Saved)
	if c.Frames.book != nil {
		c.Frames.account.suspect = noticed
	}
	return err
}

// Pass takes over a handle that a decorator passes from one child to another.
func (c *StageCall[T]) Pass(h T) error {
	var cell Cell[T]
	return c.Frames.Hold(&cell, h, ^classesOf(memory.Workspace, memory.Loss))
}

// DropPassed releases a handle that Pass has taken over.
func (c *StageCall[T]) DropPassed(h T) error {
	return c.Drop(&Cell[T]{Handle: h, State: Full}, passing)
}
