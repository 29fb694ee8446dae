package frames

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
)

// FarMemory is the far memory of a rank, which holds saved state while no action needs it (package offload).
// Copies run on other goroutines.
type FarMemory[T any] interface {
	memory.Book
	memory.Reclaimer
	// Store starts copying a buffer to far memory and returns the number of the copy.
	Store(h T) (number int32, err error)
	// Load starts copying a far copy back to a buffer.
	Load(number int32, h T) error
	// Wait waits for the last Store or Load, and reports whether it had to block.
	Wait(ctx context.Context, number int32) (waited bool, err error)
	// Free frees a copy and returns its size in bytes.
	Free(number int32) (freed int64, err error)
	// Copied returns the size of a copy in bytes.
	Copied(number int32) int64
	// Stop ends all transfers. Afterwards none of them uses a buffer.
	Stop()
}

// offloadable is a space that can offload: a memory.Movable or memory.Offloader.
type offloadable[T any] interface {
	Like(class memory.Class, h T) (T, error)
}

// farCopy is the far copy of a slot.
type farCopy struct {
	exists bool
	class  memory.Class
	number int32
}

// eachOffloaded calls do for every slot of a frame that the plan offloads, with its far copy, and adds
// the slot's name to an error.
func (c *Frames[T]) eachOffloaded(stage, microbatch int, do func(slot *Cell[T], copied *farCopy) error) error {
	st := &c.stages[stage]
	if len(st.farCopies) == 0 {
		return nil
	}
	slots, copies := c.frame(stage, microbatch).slots, st.farCopies[(microbatch&st.mask)*len(st.Slots):]
	for set := c.extent.Plan.OffloadSlots[stage]; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		if err := do(&slots[i], &copies[i]); err != nil {
			return fmt.Errorf("slot %q of stage %d (%s): %w", st.Slots[i], stage, st.Name, err)
		}
	}
	return nil
}

// require returns an error unless the slot is in the state that a far-memory action requires.
func (slot *Cell[T]) require(state CellState) error {
	switch slot.State {
	case state:
		return nil
	case Empty:
		return fmt.Errorf("%w, but the plan offloads it: record the stages again", ErrEmpty)
	}
	return fmt.Errorf("%w, and the actions that move it are out of order", ErrOffloaded)
}

// Offload starts copying a frame's offloaded slots to far memory. The slots cannot be taken until they
// are reloaded.
func (c *Frames[T]) Offload(stage, microbatch int) error {
	c.counts[effects.Far]++
	return c.eachOffloaded(stage, microbatch, func(slot *Cell[T], copied *farCopy) error {
		if err := slot.require(Full); err != nil {
			return err
		}
		number, err := c.Far.Store(slot.Handle)
		if err != nil {
			return err
		}
		slot.State = Leaving
		*copied = farCopy{true, c.Config.Space.Class(slot.Handle), number}
		c.account.farLive += c.Far.Copied(number)
		return nil
	})
}

// WaitOffload waits for the copies of Offload. DropSaved then releases the slots' buffers.
func (c *Frames[T]) WaitOffload(ctx context.Context, stage, microbatch int) error {
	return c.waitFar(ctx, stage, microbatch, Leaving, Leaving)
}

// dropOffloaded releases the buffers of a frame's offloaded slots, whose copies are complete.
func (c *Frames[T]) dropOffloaded(stage, microbatch int) error {
	return c.eachOffloaded(stage, microbatch, func(slot *Cell[T], _ *farCopy) error {
		away := *slot
		err := c.drop(slot, stage, effects.Saved)
		if err == nil {
			away.State = Offloaded
			*slot = away
		}
		return err
	})
}

// Reload allocates buffers for a frame's offloaded slots, and starts copying their contents back.
func (c *Frames[T]) Reload(stage, microbatch int) error {
	return c.eachOffloaded(stage, microbatch, func(slot *Cell[T], copied *farCopy) error {
		if err := slot.require(Offloaded); err != nil {
			return err
		}
		h, err := c.offloadable.Like(copied.class, slot.Handle)
		if err != nil {
			return err
		}
		if err = c.Hold(slot, h, SavedClasses); err == nil {
			err = c.Far.Load(copied.number, h)
			slot.State = Returning
		}
		return err
	})
}

// WaitReload waits until a frame's offloaded slots are back, before the action that takes them.
func (c *Frames[T]) WaitReload(ctx context.Context, stage, microbatch int) error {
	return c.waitFar(ctx, stage, microbatch, Returning, Full)
}

// waitFar waits for the copies of a frame's offloaded slots, which must be in the given state, and then
// sets their state to next.
func (c *Frames[T]) waitFar(ctx context.Context, stage, microbatch int, state, next CellState) error {
	waits := false
	err := c.eachOffloaded(stage, microbatch, func(slot *Cell[T], copied *farCopy) error {
		if err := slot.require(state); err != nil {
			return err
		}
		waited, err := c.Far.Wait(ctx, copied.number)
		if err == nil {
			slot.State, waits = next, waits || waited
		}
		return err
	})
	if waits {
		c.account.farWaits++
	}
	return err
}

// DropFar frees the far copies of a frame.
func (c *Frames[T]) DropFar(stage, microbatch int) error {
	c.counts[effects.Far]--
	return c.eachOffloaded(stage, microbatch, func(_ *Cell[T], copied *farCopy) error {
		freed, err := c.Far.Free(copied.number)
		if err == nil {
			c.account.farLive -= freed
			copied.exists = false
		}
		return err
	})
}

// FarWaits returns the number of actions in the step that had to wait for a copy to or from far memory.
func (c *Frames[T]) FarWaits() int64 { return c.account.farWaits }
