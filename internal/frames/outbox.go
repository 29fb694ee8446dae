package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
)

// An outbox keeps what a stage sends to other ranks: its outputs from the forward to
// the wait for their transfer, the gradients of its inputs from the backward on (L4).
type outbox[T any] struct {
	mask    int
	outputs int
	width   int       // outputs + inputs
	cells   []Cell[T] // width for each microbatch: outputs, gradients of the inputs
	of      []int     // by place: the microbatch that was put there last
}

// begin makes room for so many consecutive microbatches.
func (b *outbox[T]) begin(microbatches int, layout *Declaration[T]) {
	places := 0
	if microbatches > 0 {
		places = ring(microbatches)
	}
	b.mask, b.outputs, b.width = places-1, layout.Outputs, layout.Outputs+layout.Inputs
	b.cells, b.of = resize(b.cells, places*b.width), resize(b.of, places)
}

// at returns the cells of what is sent of a microbatch, none where there is no room.
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

// owner says whose cell i is, in the words of Owners.
func (b *outbox[T]) owner(i, stage int, name string) string {
	what, n := "output", i%b.width
	if n >= b.outputs {
		what, n = "gradient of input", n-b.outputs
	}
	return fmt.Sprintf("microbatch %d: stage %d (%s): %s %d on its way", b.of[i/b.width], stage, name, what, n)
}

// Act says that an action runs which is no call of a stage, such as a transfer: what
// goes wrong from now on is its fault.
func (c *Frames[T]) Act(stage, microbatch int) {
	c.running.stage, c.running.microbatch, c.running.call = stage, microbatch, None
}

// Sent appends to dst what a stage has to send, borrowed: the tensors that there are,
// without those whose bit is set in none.
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
