package frames

import (
	"iter"

	"github.com/weir-ml/weir/internal/effects"
)

// Dry makes the steps from now on dry runs, which find out what memory a step needs:
// bounded is called where a size is the bound of one that depends on values. nil ends
// that.
func (c *Frames[T]) Dry(bounded func()) { c.bounded = bounded }

// AtMost returns n, or in a dry run the bound that the buffer allocated next is planned for.
func (c *Frames[T]) AtMost(n, bound int) int {
	if c.bounded == nil {
		return n
	}
	c.bounded()
	return bound
}

// Entered returns what an item's entry holds of a part, borrowed, and whether it holds it.
func (c *Frames[T]) Entered(item, part int) (T, bool) {
	cell := c.part(item, part)
	return cell.Handle, cell.Held()
}

// Placed returns the handles that a place holds, borrowed, by port: the zero T for none.
func (c *Frames[T]) Placed(place effects.Place, stage, microbatch int) []T {
	cells := c.at(place, stage, microbatch)
	handles := make([]T, len(cells))
	for i := range cells {
		handles[i] = cells[i].Handle
	}
	return handles
}

// Slots iterates over the saved tensors of a stage and microbatch, by the names of their slots.
func (c *Frames[T]) Slots(stage, microbatch int) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for i, slot := range c.frame(stage, microbatch).slots {
			if slot.Held() && !yield(c.stages[stage].Slots[i], slot.Handle) {
				return
			}
		}
	}
}
