package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
)

// An outbox holds the tensors that a stage sends to other ranks: outputs from the forward, and
// gradients of inputs from the backward, until the wait for their transfer (L4).
type outbox[T any] struct {
	mask    int
	outputs int
	width   int       // outputs + inputs
	cells   []Cell[T] // width for each microbatch: outputs, gradients of the inputs
	of      []int     // by place: the last microbatch that was put there
}

// begin makes room for the given number of consecutive microbatches.
func (b *outbox[T]) begin(microbatches int, layout *Declaration[T]) {
	places := 0
	if microbatches > 0 {
		places = ring(microbatches)
	}
	b.mask, b.outputs, b.width = places-1, layout.Outputs, layout.Outputs+layout.Inputs
	b.cells, b.of = resize(b.cells, places*b.width), resize(b.of, places)
}

// at returns the cells of a microbatch's outgoing tensors, or none if there is no room.
func (b *outbox[T]) at(microbatch int, place effects.Place) []Cell[T] {
	if len(b.of) == 0 {
		return nil
	}
	cells := b.cells[(microbatch&b.mask)*b.width:][:b.width]
	if place == effects.SentOutput {
		return cells[:b.outputs]
	}
	return cells[b.outputs:]
}

// owner returns the name of the owner of cell i, for Owners.
func (b *outbox[T]) owner(i, stage int, name string) string {
	what, n := "output", i%b.width
	if n >= b.outputs {
		what, n = "gradient of input", n-b.outputs
	}
	return fmt.Sprintf("microbatch %d: stage %d (%s): %s %d in flight", b.of[i/b.width], stage, name, what, n)
}

// Act records that an action without a stage call runs, such as a transfer. Leaks found from now on
// are attributed to it.
func (c *Frames[T]) Act(stage, microbatch int) {
	c.running.stage, c.running.microbatch, c.running.call = stage, microbatch, None
}

// Sent appends the tensors that a stage has to send to dst, borrowed. It skips ports whose bit is
// set in none.
func (c *Frames[T]) Sent(stage, microbatch int, place effects.Place, dst []T, none uint64) ([]T, error) {
	for i, cell := range c.stages[stage].outbox.at(microbatch, place) {
		if none>>i&1 == 1 {
			continue
		}
		if !cell.Held() {
			return dst, fmt.Errorf("%w: %v %d of stage %d (%s), microbatch %d", ErrMissing, place, i, stage, c.stages[stage].Name, microbatch)
		}
		dst = append(dst, cell.Handle)
	}
	return dst, nil
}
