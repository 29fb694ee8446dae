package frames

import "iter"

// Dry makes the steps from now on dry runs, which find out what memory a step needs:
// bounded is called where a size is the bound of one that depends on values. nil ends
// that.
func (c *Frames[T]) Dry(bounded func()) { c.bounded = bounded }

// AtMost returns n, a number of elements that depends on values: how many tokens an
// expert gets, say. Memory is planned before there are values, so in a dry run it
// returns the bound, and the buffer allocated next is planned for that. A step may ask
// for less there, and for more nowhere.
func (m *View[T]) AtMost(n, bound int) int { return m.ctx.AtMost(n, bound) }

// AtMost is that of a view, for a source.
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
	return cell.handle, cell.held()
}

// Slots iterates over what a stage has saved of a microbatch, by the names of the slots.
func (c *Frames[T]) Slots(stage, microbatch int) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for i, slot := range c.frame(stage, microbatch).slots {
			if slot.held() && !yield(c.stages[stage].Slots[i], slot.handle) {
				return
			}
		}
	}
}
