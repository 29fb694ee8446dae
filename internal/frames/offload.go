package frames

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/memory"
)

// Far is the far memory of a rank, which holds saved state while no action needs it (see package
// far). Copies run on other goroutines.
type Far[T any] interface {
	memory.Book
	memory.Reclaimer
	// Store starts the copy of a buffer to far memory and returns the number of the copy.
	Store(h T) (number int32, err error)
	// Load starts the copy back to a buffer.
	Load(number int32, h T) error
	// Wait waits for the last Store or Load, and reports whether it had to block.
	Wait(ctx context.Context, number int32) (waited bool, err error)
	// Free frees a copy and returns its size in bytes. Copied returns the size.
	Free(number int32) (freed int64, err error)
	Copied(number int32) int64
	// Stop ends all copies. Afterwards no copy uses a buffer.
	Stop()
}

// liker is a space that can offload: a memory.Movable or memory.Offloader.
type liker[T any] interface {
	Like(class memory.Class, h T) (T, error)
}

// farCopy is the far copy of a slot.
type farCopy struct {
	exists bool
	class  memory.Class
	number int32
}

// offloaded returns the slots of a frame, their far copies, and the set of the slots that the plan
// offloads.
func (c *Frames[T]) offloaded(stage, microbatch int) (slots []Cell[T], copies []farCopy, set uint64) {
	st := &c.stages[stage]
	if len(st.away) == 0 {
		return nil, nil, 0
	}
	n := len(st.Slots)
	return c.frame(stage, microbatch).slots, st.away[(microbatch&st.mask)*n:][:n], c.extent.Away[stage]
}

// farFault returns the error for a slot for which an action on far memory failed. A nil err means
// that the slot is not in the state that the action needs.
func (c *Frames[T]) farFault(stage, slot int, state CellState, err error) error {
	st := &c.stages[stage]
	switch {
	case err != nil:
	case state == Empty:
		err = fmt.Errorf("%w, but the plan offloads it: record the stages again", ErrEmpty)
	default:
		err = fmt.Errorf("%w, and the actions that move it are out of order", ErrAway)
	}
	return fmt.Errorf("slot %q of stage %d (%s): %w", st.Slots[slot], stage, st.Name, err)
}

// Offload starts the copies of a frame's offloaded slots to far memory. The slots cannot be taken
// until they are reloaded.
func (c *Frames[T]) Offload(stage, microbatch int) error {
	slots, copies, set := c.offloaded(stage, microbatch)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		slot, copied := &slots[i], &copies[i]
		if slot.State != Full {
			return c.farFault(stage, i, slots[i].State, nil)
		}
		number, err := c.Far.Store(slot.Handle)
		if err != nil {
			return c.farFault(stage, i, Empty, err)
		}
		slot.State = Leaving
		*copied = farCopy{true, c.Space.Class(slot.Handle), number}
		c.far += c.Far.Copied(number)
	}
	c.counts[effects.Far]++
	return nil
}

// Offloaded waits for the copies of Offload. DropSaved then releases the slots' buffers.
func (c *Frames[T]) Offloaded(ctx context.Context, stage, microbatch int) error {
	return c.waitFar(ctx, stage, microbatch, Leaving, Leaving)
}

// dropAway releases the buffers of a frame's offloaded slots, whose copies are complete.
func (c *Frames[T]) dropAway(stage, microbatch int) error {
	slots, _, set := c.offloaded(stage, microbatch)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		away := slots[i]
		if err := c.drop(&slots[i], stage, effects.Saved); err != nil {
			return c.farFault(stage, i, Empty, err)
		}
		away.State = Away
		slots[i] = away
	}
	return nil
}

// Reload allocates buffers for a frame's offloaded slots, and starts the copies back.
func (c *Frames[T]) Reload(stage, microbatch int) error {
	slots, copies, set := c.offloaded(stage, microbatch)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		slot, copied := &slots[i], &copies[i]
		if slot.State != Away {
			return c.farFault(stage, i, slots[i].State, nil)
		}
		h, err := c.like.Like(copied.class, slot.Handle)
		if err != nil {
			return c.farFault(stage, i, Empty, err)
		}
		if err = c.Hold(slot, h, SavedClasses); err == nil {
			err = c.Far.Load(copied.number, h)
			slot.State = Returning
		}
		if err != nil {
			return c.farFault(stage, i, Empty, err)
		}
	}
	return nil
}

// Reloaded waits until a frame's offloaded slots are back, before the action that takes them.
func (c *Frames[T]) Reloaded(ctx context.Context, stage, microbatch int) error {
	return c.waitFar(ctx, stage, microbatch, Returning, Full)
}

// waitFar waits for the copies of a frame's slots, which must be in a state, and sets the next
// state.
func (c *Frames[T]) waitFar(ctx context.Context, stage, microbatch int, state, next CellState) error {
	waits := false
	slots, copies, set := c.offloaded(stage, microbatch)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		slot, copied := &slots[i], &copies[i]
		if slot.State != state {
			return c.farFault(stage, i, slots[i].State, nil)
		}
		waited, err := c.Far.Wait(ctx, copied.number)
		if err != nil {
			return c.farFault(stage, i, Empty, err)
		}
		slot.State, waits = next, waits || waited
	}
	if waits {
		c.waits++
	}
	return nil
}

// DropFar frees the far copies of a frame.
func (c *Frames[T]) DropFar(stage, microbatch int) error {
	_, copies, set := c.offloaded(stage, microbatch)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set)
		freed, err := c.Far.Free(copies[i].number)
		if err != nil {
			return c.farFault(stage, i, Empty, err)
		}
		c.far -= freed
		copies[i].exists = false
	}
	c.counts[effects.Far]--
	return nil
}

// FarWaits returns the number of actions of the step that have waited for a copy to or from far
// memory.
func (c *Frames[T]) FarWaits() int64 { return c.waits }

// farOwner yields the far copy of a cell of a stage, if there is one.
func (c *Frames[T]) farOwner(st *stage[T], cell int, name string, yield func(memory.Info) bool) bool {
	slot := cell%st.width - st.Inputs - st.Outputs
	if len(st.away) == 0 || slot < 0 {
		return true
	}
	copied := &st.away[cell/st.width*len(st.Slots)+slot]
	return !copied.exists || yield(memory.Info{Name: name + " in far memory", Class: copied.class, Bytes: c.Far.Copied(copied.number), Held: 1})
}
