package frames

import (
	"errors"
	"fmt"
	"iter"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// frame holds the tensors of one stage and microbatch.
type frame[T any] struct {
	open       bool
	microbatch int       // the microbatch that owns the frame
	inputs     []Cell[T] // inputs of the stage
	gradients  []Cell[T] // gradients of the stage's outputs
	slots      []Cell[T] // tensors saved for a later action
}

// frame returns a stage's frame at a microbatch's position in the ring.
func (c *Frames[T]) frame(stage, microbatch int) *frame[T] {
	st := &c.stages[stage]
	return &st.frames[microbatch&st.mask]
}

// Open opens a stage's frame for a microbatch at the beginning of the forward, and fills dst with the
// stage's inputs, which are borrowed.
func (c *Frames[T]) Open(stage, microbatch int, dst []T) error {
	f := c.frame(stage, microbatch)
	if err := c.borrow("input", f.inputs, dst, 0, stage, microbatch); err != nil {
		return err
	}
	if f.open {
		return fmt.Errorf("%w: the frame of stage %d for microbatch %d still belongs to microbatch %d",
			ErrOccupied, stage, c.indexOf(microbatch), c.indexOf(f.microbatch))
	}
	f.open, f.microbatch = true, microbatch
	if st := &c.stages[stage]; len(st.sizes) > 0 {
		sizes := st.sizes[(microbatch&st.mask)*st.Inputs:]
		for i, h := range dst {
			sizes[i] = c.Config.Space.Bytes(h)
		}
	}
	for i := range f.slots {
		f.slots[i].State = Empty
	}
	c.counts[effects.Saved]++
	return nil
}

// Call begins a stage call for a microbatch; End ends it. Call also begins a new generation, which ends
// all earlier views.
func (c *Frames[T]) Call(stage, microbatch int, kind Call) *StageCall[T] {
	st, call := &c.stages[stage], &c.call
	c.generation++
	running := &c.account.running
	running.stage, running.microbatch, running.call, running.from = stage, microbatch, kind, c.position()
	call.Declared, call.Kind, call.Microbatch, call.BatchIndex = st.Declaration, kind, microbatch, c.extent.Plan.BatchIndex(microbatch)
	call.discarded = ""
	call.stage, call.frame, call.Access = st, &st.frames[microbatch&st.mask], &st.access
	if kind == InForward && c.Repeats(call.BatchIndex) {
		call.narrowed = st.access
		call.narrowed.Pass, call.Access = Recompute, &call.narrowed
	}
	if invariants.Enabled {
		c.beginCall()
	}
	return call
}

// Act records that an action without a stage call, such as a transfer, is running. Leaks found after that
// are attributed to the action.
func (c *Frames[T]) Act(stage, microbatch int) {
	running := &c.account.running
	running.stage, running.microbatch, running.call, running.from = stage, microbatch, None, c.position()
}

// PutAt takes over the tensors h, one per port, and holds them in the given place for a stage and a
// microbatch. Ports whose bit is set in none have no tensor. PutAt sets the elements of h that it has
// taken over to zero, even if it returns an error.
func (c *Frames[T]) PutAt(place effects.BufferKind, stage, microbatch int, h []T, none uint64) error {
	st := &c.stages[stage]
	switch place {
	case effects.SentOutput, effects.SentGradient:
		if len(st.outbox.owners) == 0 {
			return fmt.Errorf("%w: the plan has no sends of stage %d (%s)", ErrUndeclared, stage, st.Name)
		}
	case effects.Output:
		c.outputs = resize(c.outputs, len(h))
	}
	if err := c.put(place, c.at(place, stage, microbatch), h, none); err != nil {
		err = c.call.explain(err)
		return fmt.Errorf("batchctx: %v of stage %d (%s), microbatch %d: %w", place, stage, st.Name, c.indexOf(microbatch), err)
	}
	if place == effects.SentOutput || place == effects.SentGradient {
		st.outbox.owners[microbatch&st.outbox.mask] = microbatch
	}
	c.counts[place]++
	return nil
}

// PutParams takes over the buffers that alloc makes for the parameters of a stage: gathered weights or
// whole gradients. If made is false, the parameter has none.
func (c *Frames[T]) PutParams(place effects.BufferKind, stage int, alloc func(param int) (h T, made bool, err error)) error {
	cells := c.at(place, stage, 0)
	for p := range cells {
		h, made, err := alloc(p)
		if err == nil && made {
			err = c.put(place, cells[p:p+1], []T{h}, 0)
		}
		if err != nil {
			st := &c.stages[stage]
			return fmt.Errorf("batchctx: %v of stage %d (%s), %q: %w", place, stage, st.Name, st.Params[p].Name, err)
		}
	}
	c.counts[place]++
	return nil
}

// Grad returns the gradient to which a stage adds: the whole gradient that the frames hold, or
// Use.Grad.
func (c *Frames[T]) Grad(stage, param int) T {
	if cell := &c.stages[stage].grads[param]; cell.Held() {
		return cell.Handle
	}
	return c.stages[stage].Params[param].Grad
}

// Weight returns the weight that a stage computes with: the gathered weight, or Use.Weight.
func (c *Frames[T]) Weight(stage, param int) T { return c.stages[stage].weight(param) }

// DropAt releases the contents of a place, except parts of entries and saved state, which
// DropParts and DropSaved release.
func (c *Frames[T]) DropAt(place effects.BufferKind, stage, microbatch int) error {
	c.counts[place]--
	cells := c.at(place, stage, microbatch)
	copies := place == effects.ForwardWeights || place == effects.BackwardWeights
	for i := range cells {
		if cells[i].Held() && !(copies && c.stages[stage].WeightCopies[i].place() != place) {
			if err := c.drop(&cells[i], stage, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// Held iterates over the tensors in a place of a stage and a microbatch.
func (c *Frames[T]) Held(place effects.BufferKind, stage, microbatch int) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, cell := range c.at(place, stage, microbatch) {
			if cell.Held() && !yield(cell.Handle) {
				return
			}
		}
	}
}

// at returns the cells of a place.
func (c *Frames[T]) at(place effects.BufferKind, stage, microbatch int) []Cell[T] {
	st := &c.stages[stage]
	switch place {
	case effects.Input:
		return c.frame(stage, microbatch).inputs
	case effects.Gradient:
		return c.frame(stage, microbatch).gradients
	case effects.SentOutput, effects.SentGradient:
		return st.outbox.at(microbatch, place)
	case effects.ForwardWeights, effects.BackwardWeights:
		return st.copies
	case effects.Gathered:
		return st.gathered
	case effects.Accumulator:
		return st.grads
	}
	return c.outputs
}

// put takes over the tensors h and stores them in the cells of a place.
func (c *Frames[T]) put(place effects.BufferKind, cells []Cell[T], h []T, none uint64) error {
	var zero T
	for i := range cells {
		if none>>i&1 == 1 {
			continue
		}
		if cells[i].Held() {
			return fmt.Errorf("%w: tensor %d", ErrOccupied, i)
		}
		if err := c.Hold(&cells[i], h[i], placeClasses[place]); err != nil {
			if errors.Is(err, memory.ErrNone) {
				return &MissingError{Port: i, Err: err}
			}
			if errors.Is(err, memory.ErrNoPlain) {
				return fmt.Errorf("tensor %d takes over a reference: Retain a borrowed handle first: %w", i, err)
			}
			return fmt.Errorf("tensor %d: %w", i, err)
		}
		h[i] = zero
	}
	return nil
}

// CheckSizes returns ErrSize if the gradient of one of a stage's inputs has another size than the
// input. It skips the ports in none.
func (c *Frames[T]) CheckSizes(stage, microbatch int, gradIn []T, none uint64) error {
	st := &c.stages[stage]
	for i, h := range gradIn {
		if none>>i&1 == 1 {
			continue
		}
		// PutAt rejects a handle that is not a buffer.
		if want, have := st.sizes[(microbatch&st.mask)*st.Inputs+i], c.Config.Space.Bytes(h); have != want && have != 0 {
			return fmt.Errorf("%w: gradIn[%d] has %d bytes, and the input had %d", ErrSize, i, have, want)
		}
	}
	return nil
}

// Gradients fills dst with the gradients of the stage's outputs, which are borrowed.
func (c *Frames[T]) Gradients(stage, microbatch int, dst []T, none uint64) error {
	return c.borrow("gradient", c.frame(stage, microbatch).gradients, dst, none, stage, microbatch)
}

// borrow fills dst with the handles in cells. Every cell must hold a handle, except those of the ports in
// none.
func (c *Frames[T]) borrow(what string, cells []Cell[T], dst []T, none uint64, stage, microbatch int) error {
	for i := range dst {
		if none>>i&1 == 1 {
			continue
		}
		if !cells[i].Held() {
			return fmt.Errorf("%w: %s %d of stage %d (%s), microbatch %d", ErrMissing, what, i, stage, c.stages[stage].Name, c.indexOf(microbatch))
		}
		dst[i] = cells[i].Handle
	}
	return nil
}

// DropSaved releases the tensors saved for a call, except those that W takes too (L2). If last is set, it
// releases all saved tensors and closes the frame. It returns ErrUntaken for a tensor that the backward
// should have taken but did not, and ErrOffloaded for one that was not reloaded. At WAIT_OFFLOAD it
// releases the buffers of the offloaded slots instead.
func (c *Frames[T]) DropSaved(stage, microbatch int, call Call, last bool) error {
	if call == schedule.WaitOffload {
		return c.dropOffloaded(stage, microbatch)
	}
	st, untaken := &c.stages[stage], -1
	f := &st.frames[microbatch&st.mask]
	slots := f.slots
	must := call != InForward && (st.Inputs == 0 || st.InputGradient) // otherwise a tensor may be saved for a gradient that the step does not need
	for i := range slots {
		if slots[i].offloaded() && (last || slots[i].Consumer.TakenIn(call)) {
			return fmt.Errorf("%w: slot %q of stage %d (%s) at its last use in %v", ErrOffloaded, st.Slots[i], stage, st.Name, call)
		}
		if slots[i].Held() && (last || slots[i].Consumer.TakenIn(call)) {
			if must && slots[i].State == Full && !slots[i].Optional {
				untaken = i
			}
			if !last && untaken != i && slots[i].Consumer.keptIn(call) {
				slots[i].State = Full // for W
				continue
			}
			if err := c.drop(&slots[i], stage, effects.Saved); err != nil {
				return fmt.Errorf("batchctx: slot %q: %w", st.Slots[i], err)
			}
		}
	}
	if untaken >= 0 {
		return fmt.Errorf("%w: slot %q of stage %d (%s): Take it in %v, End it if it is not needed, or do not Save it", ErrUntaken, st.Slots[untaken], stage, st.Name, call)
	}
	if last {
		f.open, f.microbatch = false, 0
		c.counts[effects.Saved]--
	}
	return nil
}

// GiveOutputs moves the outputs of the last stage to dst and calls take, which then owns them. The
// baseline is adjusted by the memory that take keeps, so that it is not attributed to the step.
func (c *Frames[T]) GiveOutputs(dst []T, take func() error) error {
	c.UpdateExcess() // attributes an earlier leak to the stage, not to take
	c.counts[effects.Output]--
	var given memory.ByClass
	for i := range c.outputs {
		h := c.outputs[i].Handle
		unheld, err := c.Unhold(h)
		if err != nil {
			return err
		}
		dst[i], c.outputs[i] = h, Cell[T]{}
		given[c.Config.Space.Class(h)] += unheld
	}
	if c.book == nil {
		return take()
	}
	base, after := &c.account.baseline, &c.account.stats
	c.book.Stats(after)
	before := *after
	err := take()
	c.book.Stats(after)
	base.Live += given.Total() + after.Live - before.Live
	for class := range given {
		base.Classes[class] += given[class] + after.Classes[class] - before.Classes[class]
	}
	return err
}
