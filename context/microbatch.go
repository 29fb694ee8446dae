package batchctx

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/internal/invariants"
	"github.com/weir-ml/weir/memory"
)

// Keys of what a stage declares, made by stages.Decl. They count from 1 and have a meaning
// for their stage alone; 0 is none, which every call refuses.
type (
	Part  int // a read of an entry part
	Slot  int // a place to save in
	Loss  int // a loss that the stage records
	Param int // a use of a parameter
	Copy  int // a copy of a weight
)

// Microbatch is a stage's view of one microbatch for one call. It ends when the call
// returns: a copy that is used afterwards fails with ErrEnded. It is for the goroutine of the
// call alone: take what other goroutines compute with before they start. A call that fails on
// another goroutine ends the process, as every panic there does.
//
// Its calls return no error. One that cannot do what it is asked does not return: it
// records why and unwinds, by a panic, to the runner, which ends the step with this error
// and everything released. Deferred calls run, and may still call Release, Drop,
// Abandon and SetAccess. A stage that recovers the panic ends the step all the same.
type Microbatch[T any] struct {
	call       *frames.StageCall[T]
	generation uint64
}

// NewMicrobatch returns the view of the call that runs, for the runner.
func NewMicrobatch[T any](call *frames.StageCall[T]) Microbatch[T] {
	return Microbatch[T]{call, call.Frames.Generation()}
}

// open returns the call, for a method that is refused after a failure.
func (m Microbatch[T]) open() *frames.StageCall[T] {
	if f := m.call.Frames; f.Generation() != m.generation {
		f.Fail(ErrEnded)
	}
	return m.call
}

// anyway returns the call, failed or not.
func (m Microbatch[T]) anyway() *frames.StageCall[T] {
	if f := m.call.Frames; f.Generation() != m.generation && !f.Failed(m.generation) {
		f.Fail(ErrEnded)
	}
	return m.call
}

// Check ends the call and the step with err, unless it is nil.
func (m Microbatch[T]) Check(err error) {
	if err != nil {
		m.call.Frames.Fail(err)
	}
}

// checkAnyway is Check for a method that works after a failure, where the first failure wins.
func (m Microbatch[T]) checkAnyway(err error) {
	if f := m.call.Frames; err != nil && !f.Failed(m.generation) {
		f.Fail(err)
	}
}

// refuse ends the call and the step with err and its subject. The runner adds the location.
func (m Microbatch[T]) refuse(err error, subject string, args ...any) {
	m.call.Frames.Fail(fmt.Errorf("%w: %s", err, fmt.Sprintf(subject, args...)))
}

// index returns the stage's number of a key, and refuses a key of another stage.
func (m Microbatch[T]) index(noun string, key int, own frames.Range) int {
	i, declared := own.At(key - 1)
	if !declared {
		m.refuse(ErrUndeclared, "%s %d where the stage declares %d: keys are those of its own Decl", noun, key, own.Count)
	}
	return i
}

// Must returns h if err is nil, and ends the call and the step with err if it is not:
// mb.Must(device.Alloc(...)).
func (m Microbatch[T]) Must(h T, err error) T {
	m.Check(err)
	return h
}

// Step returns the number of the step.
func (m Microbatch[T]) Step() int64 { return m.anyway().Frames.Step }

// Index returns the number of the microbatch in the batch, from 0, as its source was told
// (Entry.Index): not the order it runs in, nor the number that a plan for several
// copies of the model gives it.
func (m Microbatch[T]) Index() int { return m.anyway().Item }

// Global returns the number of the microbatch among those of all replicas in the
// step: random draws are keyed by it, so that no two replicas draw the same.
func (m Microbatch[T]) Global() int64 {
	c := m.anyway()
	return int64(c.Item)*int64(c.Frames.Replicas) + int64(c.Frames.Replica)
}

// Seed returns the seed that random draws are keyed by, together with Step,
// Global and the operation's name (L9).
func (m Microbatch[T]) Seed() uint64 { return m.anyway().Frames.Seed }

// Pass returns why the stage runs (L13).
func (m Microbatch[T]) Pass() Pass { return m.anyway().Access.Pass }

// AtMost returns n, a number of elements that depends on values: how many tokens an
// expert gets, say. Memory is planned before there are values, so in a dry run it
// returns the bound, and the buffer allocated next is planned for that. A step may ask
// for less there, and for more nowhere.
func (m Microbatch[T]) AtMost(n, bound int) int { return m.open().Frames.AtMost(n, bound) }

// Part returns an entry part, borrowed for the call. It fails with ErrDropped after the
// part's last read on this rank, and with ErrUndeclared if the part is alive and the
// stage did not declare to read it in this kind of action.
func (m Microbatch[T]) Part(p Part) T {
	c := m.open()
	read := c.Declared.Reads[m.index("read", int(p), c.Access.Reads)]
	h, alive := c.Part(read.Part)
	err, now := error(nil), frames.AtCall(c.Kind)
	if !alive {
		err = ErrDropped
	} else if read.When()&now == 0 {
		err = ErrUndeclared
	}
	if err != nil {
		if c.Kind == frames.InBackward {
			now = AtBackward // a plan that splits makes I of it
		}
		m.refuse(err, "part %q in %v: declare this read, Decl.Part(%[1]q, %[3]v)", c.Frames.Parts[read.Part], c.Kind, read.When()|now)
	}
	return h
}

// Retain adds a reference to h and returns it, so that a borrowed handle can be
// saved or returned. A handle that cannot be retained comes back as it is, and
// handing it over fails.
func (m Microbatch[T]) Retain(h T) T {
	_ = m.open().Frames.Space.Retain(h) // Save and the runner refuse a handle without a reference.
	return h
}

// Release ends a reference of the stage's own, such as a workspace's.
func (m Microbatch[T]) Release(h T) {
	_, err := m.anyway().Frames.Space.Release(h)
	if errors.Is(err, memory.ErrNoPlain) {
		err = fmt.Errorf("%w: Release what is allocated or retained: what is borrowed ends by itself", err)
	}
	m.checkAnyway(err)
}

// Save hands h over to the backward, or in I to W. It may be called in a forward, in a
// recompute, and in I. In Eval, and in the first pass of a stage that recomputes, nothing
// will take it and h is released at once. If it fails h is still the stage's. I may save
// in a slot that it has taken: what was there ends then.
func (m Microbatch[T]) Save(s Slot, h T) {
	by := ByBackward
	if c := m.open(); c.Kind == frames.InBackwardInput && c.Access.Pass != Recompute {
		by = ByWeight
	}
	m.SaveFor(by, s, h)
}

// SaveFor is Save for the action that is named: a forward may save for W.
func (m Microbatch[T]) SaveFor(by Taker, s Slot, h T) {
	c := m.open()
	slot, name := m.slot(s)
	if c.Access.Discard || c.Access.Pass == Eval {
		m.Release(h)
		return
	}
	allowed := c.Kind == frames.InForward || c.Access.Pass == Recompute || c.Kind == frames.InBackwardInput && by == ByWeight
	if !allowed {
		m.refuse(ErrMisplaced, "Save in slot %q: nothing would take it: save in a forward, or in I for W", name)
	}
	if slot.State == frames.Full {
		m.refuse(ErrOccupied, "slot %q was saved in already: declare another one", name)
	}
	taken := *slot
	if err := c.Frames.Hold(slot, h, frames.SavedClasses); errors.Is(err, ErrClass) {
		m.refuse(err, "Save in slot %q", name)
	} else if err != nil {
		m.refuse(err, "Save in slot %q takes over a reference: Retain what is borrowed", name)
	}
	if slot.Optional = c.Access.Frozen; slot.Optional {
		by = ByBackward
	}
	slot.Taker = by
	if taken.State == frames.Lent { // released after h is held, so that the same tensor stays
		m.Check(c.Drop(&taken, effects.Saved))
	}
}

// slot returns a slot and its name.
func (m Microbatch[T]) slot(s Slot) (*frames.Cell[T], string) {
	c := m.call
	i := m.index("slot", int(s), c.Access.Slots)
	name := c.Declared.Slots[i]
	slot := c.Slot(i)
	if slot == nil {
		m.refuse(ErrTaken, "slot %q of a microbatch that is over", name)
	}
	return slot, name
}

// Take lends what was saved in a slot for the rest of the action, once. The slot ends
// with the action, or with End.
func (m Microbatch[T]) Take(s Slot) T {
	c := m.open()
	slot, name := m.slot(s)
	switch {
	case slot.State == frames.Lent || slot.State == frames.Dropped:
		m.refuse(ErrTaken, "slot %q: take once and keep the handle for the call", name)
	case slot.State == frames.Empty:
		m.refuse(ErrEmpty, "slot %q: Save it in every forward", name)
	case !slot.Taker.TakenIn(c.Kind):
		m.refuse(ErrMisplaced, "Take in %v from slot %q: what is saved by %v is taken there", c.Kind, name, slot.Taker)
	}
	slot.State = frames.Lent
	return slot.Handle
}

// Move is Take of a slot that ends with it: the stage owns h, and releases it or hands it over.
// Take is for what the call only reads.
func (m Microbatch[T]) Move(s Slot) T {
	h := m.Take(s)
	slot, _ := m.slot(s)
	_, err := m.call.Frames.Yield(h)
	slot.End()
	m.Check(err)
	return h
}

// End ends a slot before its action does, to make room: one that was taken, or one that
// this action could take and does not need.
func (m Microbatch[T]) End(s Slot) {
	c := m.open()
	slot, name := m.slot(s)
	if slot.State != frames.Lent && !(slot.State == frames.Full && c.Kind != frames.InForward && slot.Taker.TakenIn(c.Kind)) {
		m.refuse(ErrMisplaced, "End of slot %q, which holds nothing that this action may take", name)
	}
	m.Check(c.DropEarly(slot))
}

// Loss records a loss as two numbers: an unnormalised sum and its weight, finite
// and not negative (L3). What trains is recorded once in a microbatch: a second record
// fails with ErrContribution. In a recompute it does nothing.
func (m Microbatch[T]) Loss(l Loss, sum, weight float64) {
	c := m.open()
	i := m.index("loss", int(l), c.Access.Losses)
	switch {
	case c.Access.Pass == Recompute:
		return
	case c.Kind != frames.InForward:
		m.refuse(ErrMisplaced, "loss %q in %v: record it in the forward", c.Declared.LossNames[i], c.Kind)
	}
	if err := c.Frames.Losses.Record(c.Declared.Losses[i], c.Item, sum, weight); err != nil {
		m.refuse(err, "loss %q", c.Declared.LossNames[i])
	}
	m.recorded(i, weight > 0)
}

// recorded notes a record of a loss. What trains is recorded once in a microbatch: what is
// recorded twice counts twice in the divisor, and once in the gradients.
func (m Microbatch[T]) recorded(i int, weighed bool) {
	c := m.call
	l := c.Loss(i)
	l.Weighed = l.Weighed || weighed
	if l.Last == c.Microbatch && c.Frames.Seeds[c.Declared.Losses[i]] != 0 {
		m.refuse(ErrContribution, "a second record of %q in a microbatch: call Loss once, with the sums and the weights added up", c.Declared.LossNames[i])
	}
	l.Last = c.Microbatch
}

// LossCell returns the cell that a stage adds its loss to, in place of Loss, if the loss is on
// the rank's device, so that nothing waits for it before step end (L3): cells of losses
// (loss.Cells), borrowed for the call, and the number of the one. It returns the zero T if two
// numbers are wanted: the device has no cells, the loss is a Min or a Max, or nothing is recorded.
func (m Microbatch[T]) LossCell(l Loss) (cells T, index int) {
	c := m.open()
	i := m.index("loss", int(l), c.Access.Losses)
	index = c.Declared.Losses[i]
	if c.Frames.Cells == nil || c.Kind != frames.InForward || c.Access.Pass == Recompute || !c.Frames.Losses.OnDevice(index) {
		return cells, 0
	}
	m.recorded(i, true) // as far as the host knows
	return *c.Frames.Cells, index
}

// LossSeed returns what the gradient of a loss's sum starts with: the step's
// power-of-two scale times the loss's coefficient (L10). It is not divided by any weight:
// that happens once, at step end. A metric has no seed: ErrUndeclared.
func (m Microbatch[T]) LossSeed(l Loss) float32 {
	c := m.open()
	i := m.index("loss", int(l), c.Access.Losses)
	seed := c.Frames.Seeds[c.Declared.Losses[i]]
	if seed == 0 {
		m.refuse(ErrUndeclared, "the seed of %q, which is a metric: declare it with Decl.Loss and give it a Coefficient in Losses, or leave it out of the backward", c.Declared.LossNames[i])
	}
	c.Loss(i).Asked = true
	return seed
}

// Grad returns the gradient of a parameter to add to: it is set to zero before the first
// contribution of a step (L5). trains is false if the parameter is frozen. Grad counts
// the contribution: ask once per microbatch, in B or W, and add.
func (m Microbatch[T]) Grad(p Param) (grad T, trains bool) {
	grad, write := m.contribute(p)
	if write == First {
		m.Check(m.call.Frames.Zero(grad))
	}
	return grad, write != Skip
}

// GradFirst is Grad for kernels that write: it returns Skip, First or Add, and sets
// nothing to zero. With -tags invariants what First lends is NaN until it is overwritten,
// if the space can fill it (kernels.Host).
func (m Microbatch[T]) GradFirst(p Param) (grad T, write Write) {
	grad, write = m.contribute(p)
	if invariants.Enabled && write == First && m.call.Frames.Poison != nil {
		m.Check(m.call.Frames.Poison(grad))
	}
	return grad, write
}

// contribute counts a contribution to a parameter's gradient.
func (m Microbatch[T]) contribute(p Param) (grad T, write Write) {
	c := m.open()
	i := m.index("parameter", int(p), c.Access.Params)
	param := &c.Declared.Params[i]
	if param.Contributes == Frozen {
		return grad, Skip
	}
	if c.Kind != frames.InBackward && c.Kind != frames.InBackwardWeight {
		m.refuse(ErrMisplaced, "gradient of %q in %v: contribute in B or W", param.Name, c.Kind)
	}
	use := c.Param(i)
	if use.Last == c.Microbatch {
		m.refuse(ErrContribution, "a second contribution to %q in a microbatch: ask for the gradient once, and add the sum", param.Name)
	}
	use.Last = c.Microbatch
	use.Count++
	if use.Written {
		return param.Grad, Add
	}
	use.Written = true
	return param.Grad, First
}

// Frozen reports whether a parameter is frozen, so that nothing need be saved
// for its gradient.
func (m Microbatch[T]) Frozen(p Param) bool {
	c := m.open()
	i, declared := c.Access.Params.At(int(p) - 1)
	return declared && c.Declared.Params[i].Contributes == Frozen
}

// WeightCopy returns a copy of a weight that QUANTIZE has made, borrowed for the call. One
// for the forward is read in a forward, and in the recompute of a stage that declares it;
// one for the backward in B and I, but not in a recompute there. It fails with ErrDropped if
// the plan has dropped the copy or not made it.
func (m Microbatch[T]) WeightCopy(k Copy) T {
	c := m.open()
	i := m.index("copy of a weight", int(k), c.Access.Copies)
	w, recomputes := &c.Declared.WeightCopies[i], c.Access.Pass == Recompute
	readable := c.Kind == frames.InForward || recomputes && c.Declared.Recomputes
	if w.At == AtBackward {
		readable = !recomputes && (c.Kind == frames.InBackward || c.Kind == frames.InBackwardInput)
	}
	cell := c.WeightCopy(i)
	switch {
	case !readable:
		m.refuse(ErrMisplaced, "copy of %q for the %s in %v", w.Name, w.Direction(), c.Kind)
	case !cell.Held():
		m.refuse(ErrDropped, "copy of %q for the %s", w.Name, w.Direction())
	}
	return cell.Handle
}

// Access returns the access of the running call, for a decorator to change and
// restore around the calls of its child.
func (m Microbatch[T]) Access() Access { return *m.anyway().Access }

// SetAccess sets the access of the running call. It cuts off what the stage itself does not have.
func (m Microbatch[T]) SetAccess(a Access) { m.anyway().SetAccess(a) }

// Hold hands h over for a decorator that passes it from one child to another, as
// the runner holds what passes between stages. Drop ends it: the decorator must
// see to that on every way out of its call.
func (m Microbatch[T]) Hold(h T) { m.Check(m.open().Pass(h)) }

// Yield gives back what Hold has handed over: the reference is the decorator's again.
func (m Microbatch[T]) Yield(h T) {
	_, err := m.anyway().Frames.Yield(h)
	m.checkAnyway(err)
}

// Drop ends what Hold has handed over.
func (m Microbatch[T]) Drop(h T) { m.checkAnyway(m.anyway().DropPassed(h)) }

// Abandon ends a reference on the way out of a call that has failed: one that Hold has
// handed over if held is set, else one of the stage's own. It never fails: the first error is
// the one to report.
func (m Microbatch[T]) Abandon(h T, held bool) {
	c := m.anyway()
	if held {
		_ = c.DropPassed(h)
	} else {
		_, _ = c.Frames.Space.Release(h)
	}
}
