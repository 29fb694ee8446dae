package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/engine/effects"
)

// outbox holds the tensors that a stage sends to other ranks: outputs from the forward, and gradients of inputs
// from the backward, until the wait for their transfer (L4).
type outbox[T any] struct {
	mask    int
	outputs int
	width   int       // outputs + inputs
	cells   []Cell[T] // a ring, width cells for each microbatch: outputs, then gradients of the inputs
	owners  []int     // the microbatch at each position in the ring
}

// begin makes room for a number of consecutive microbatches.
func (b *outbox[T]) begin(microbatches int, layout *Declaration[T]) {
	places := 0
	if microbatches > 0 {
		places = ringSize(microbatches)
	}
	b.mask, b.outputs, b.width = places-1, layout.Outputs, layout.Outputs+layout.Inputs
	b.cells, b.owners = resize(b.cells, places*b.width), resize(b.owners, places)
}

// at returns the cells of a microbatch's outgoing tensors in a place, or none if the plan has no
// sends of the stage.
func (b *outbox[T]) at(microbatch int, place effects.BufferKind) []Cell[T] {
	if len(b.owners) == 0 {
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
	return fmt.Sprintf("microbatch %d: stage %d (%s): %s %d in flight", b.owners[i/b.width], stage, name, what, n)
}

// Outgoing appends to dst the tensors that a stage must send, which are borrowed. It skips ports whose
// bit is set in none.
func (c *Frames[T]) Outgoing(stage, microbatch int, place effects.BufferKind, dst []T, none uint64) ([]T, error) {
	for i, cell := range c.stages[stage].outbox.at(microbatch, place) {
		if none>>i&1 == 1 {
			continue
		}
		if !cell.Held() {
			return dst, fmt.Errorf("%w: %v %d of stage %d (%s), microbatch %d", ErrMissing, place, i, stage, c.stages[stage].Name, c.indexOf(microbatch))
		}
		dst = append(dst, cell.Handle)
	}
	return dst, nil
}
