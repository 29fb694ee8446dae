package frames

import (
	"fmt"
)

// An outbox keeps what a stage sends to other ranks: its outputs from the forward to
// the wait for their transfer, the gradients of its inputs from the backward on (L4).
// The methods of the context here are the runner's.
type outbox[T any] struct {
	mask    int
	outputs int
	width   int       // outputs + inputs
	cells   []cell[T] // width for each microbatch: outputs, gradients of the inputs
	of      []int     // by place: the microbatch that was put there last
}

// Sent says which of a stage's tensors are on their way.
type Sent uint8

// The outputs go to the stage behind, the gradients of the inputs to the one before.
const (
	Outputs Sent = iota
	InputGradients
)

// String returns what is sent, in words.
func (s Sent) String() string { return [...]string{"output", "gradient of input"}[s] }

// begin makes room for so many consecutive microbatches.
func (b *outbox[T]) begin(microbatches int, layout *Layout[T]) {
	places := 0
	if microbatches > 0 {
		places = ring(microbatches)
	}
	b.mask, b.outputs, b.width = places-1, layout.Outputs, layout.Outputs+layout.Inputs
	b.cells, b.of = resize(b.cells, places*b.width), resize(b.of, places)
}

// at returns the cells of what is sent of a microbatch, none where there is no room.
func (b *outbox[T]) at(microbatch int, what Sent) []cell[T] {
	if len(b.of) == 0 {
		return nil
	}
	cells := b.cells[(microbatch&b.mask)*b.width:][:b.width]
	if what == Outputs {
		return cells[:b.outputs]
	}
	return cells[b.outputs:]
}

// owner says whose cell i is, in the words of Owners.
func (b *outbox[T]) owner(i, stage int, name string) string {
	what, n := Outputs, i%b.width
	if n >= b.outputs {
		what, n = InputGradients, n-b.outputs
	}
	return fmt.Sprintf("microbatch %d: stage %d (%s): %v %d on its way", b.of[i/b.width], stage, name, what, n)
}

// Act says that an action runs which is no call of a stage, such as a transfer: what
// goes wrong from now on is its fault.
func (c *Frames[T]) Act(stage, microbatch int) {
	c.running.stage, c.running.microbatch, c.running.call = stage, microbatch, None
}

// PutSent takes over what a stage has returned for another rank. What it has taken
// over is zero in h afterwards, also after an error. Ports whose bit is set in none
// have no gradient.
func (c *Frames[T]) PutSent(stage, microbatch int, what Sent, h []T, none uint64) error {
	b := &c.stages[stage].outbox
	if len(b.of) == 0 {
		return fmt.Errorf("%w: the plan says that nothing of stage %d (%s) crosses a rank", ErrUndeclared, stage, c.stages[stage].Name)
	}
	if err := c.put(b.at(microbatch, what), h, none); err != nil {
		return fmt.Errorf("batchctx: %v of stage %d (%s), microbatch %d: %w", what, stage, c.stages[stage].Name, microbatch, err)
	}
	b.of[microbatch&b.mask] = microbatch
	c.counts.Transfers++
	return nil
}

// Sent appends to dst what a stage has to send, borrowed: the tensors that there are,
// without those whose bit is set in none.
func (c *Frames[T]) Sent(stage, microbatch int, what Sent, dst []T, none uint64) ([]T, error) {
	for i, cell := range c.stages[stage].outbox.at(microbatch, what) {
		if none>>i&1 == 1 {
			continue
		}
		if !cell.held() {
			return dst, fmt.Errorf("%w: %v %d of stage %d (%s), microbatch %d", ErrMissing, what, i, stage, c.stages[stage].Name, microbatch)
		}
		dst = append(dst, cell.handle)
	}
	return dst, nil
}

// DropSent ends what a stage has sent: nothing reads it any more.
func (c *Frames[T]) DropSent(stage, microbatch int, what Sent) error {
	c.counts.Transfers--
	return c.dropAll(c.stages[stage].outbox.at(microbatch, what), stage, sent)
}

// PutGathered takes over the gathered weights of a stage. What it has taken over is
// zero in h afterwards, also after an error.
func (c *Frames[T]) PutGathered(stage int, h []T) error {
	st := &c.stages[stage]
	for i := range st.shards {
		if st.shards[i].held() {
			return fmt.Errorf("%w: the weights of stage %d (%s) are gathered already", ErrOccupied, stage, st.Name)
		}
	}
	st.shards = resize(st.shards, len(h))
	if err := c.put(st.shards, h, 0); err != nil {
		return fmt.Errorf("batchctx: gathered weights of stage %d (%s): %w", stage, st.Name, err)
	}
	c.counts.Gathered++
	return nil
}

// DropGathered ends the gathered weights of a stage.
func (c *Frames[T]) DropGathered(stage int) error {
	c.counts.Gathered--
	return c.dropAll(c.stages[stage].shards, stage, gathered)
}
