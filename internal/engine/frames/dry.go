package frames

import (
	"iter"

	"github.com/weir-ml/weir/internal/engine/effects"
)

// Dry turns the calls that follow into dry runs, which measure how much memory a step needs: AtMost calls
// bounded and returns the upper bound of a size. A nil bounded ends the dry runs.
func (c *Frames[T]) Dry(bounded func()) { c.bounded = bounded }

// AtMost returns n or, in a dry run, bound: the next allocation is planned with the upper bound.
func (c *Frames[T]) AtMost(n, bound int) int {
	if c.bounded == nil {
		return n
	}
	c.bounded()
	return bound
}

// EntryPart returns a part of an entry, borrowed, and whether the entry holds it.
func (c *Frames[T]) EntryPart(batchIndex, part int) (T, bool) {
	cell := c.part(batchIndex, part)
	return cell.Handle, cell.Held()
}

// Handles returns the handles in a place by port, borrowed, with the zero T for an empty cell.
func (c *Frames[T]) Handles(place effects.BufferKind, stage, microbatch int) []T {
	cells := c.at(place, stage, microbatch)
	handles := make([]T, len(cells))
	for i := range cells {
		handles[i] = cells[i].Handle
	}
	return handles
}

// Slots iterates over the occupied slots of a stage and microbatch, yielding the slot's number and the
// saved tensor.
func (c *Frames[T]) Slots(stage, microbatch int) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, slot := range c.frame(stage, microbatch).slots {
			if slot.Held() && !yield(i, slot.Handle) {
				return
			}
		}
	}
}
