package frames

import (
	"iter"

	"github.com/weir-ml/weir/internal/effects"
)

// Dry turns the following steps into dry runs, which measure how much memory a step needs.
// bounded is called for each size that is the upper bound of a size that depends on values. A nil
// bounded ends the dry runs.
func (c *Frames[T]) Dry(bounded func()) { c.bounded = bounded }

// AtMost returns n, or in a dry run the upper bound, with which the next allocation is planned.
func (c *Frames[T]) AtMost(n, bound int) int {
	if c.bounded == nil {
		return n
	}
	c.bounded()
	return bound
}

// Entered returns a part of an item's entry, borrowed, and whether the entry holds it.
func (c *Frames[T]) Entered(item, part int) (T, bool) {
	cell := c.part(item, part)
	return cell.Handle, cell.Held()
}

// Placed returns the handles in a place, borrowed, by port: the zero T for an empty cell.
func (c *Frames[T]) Placed(place effects.Place, stage, microbatch int) []T {
	cells := c.at(place, stage, microbatch)
	handles := make([]T, len(cells))
	for i := range cells {
		handles[i] = cells[i].Handle
	}
	return handles
}

// Slots iterates over the numbers of the occupied slots of a stage and microbatch, and the saved
// tensors.
func (c *Frames[T]) Slots(stage, microbatch int) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, slot := range c.frame(stage, microbatch).slots {
			if slot.Held() && !yield(i, slot.Handle) {
				return
			}
		}
	}
}
