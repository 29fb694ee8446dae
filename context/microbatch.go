package batchctx

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/internal/invariants"
	"github.com/weir-ml/weir/memory"
)

// Keys of a stage's declarations, made by stages.Decl. They count from 1 and are valid for their
// stage only. 0 is no key: every call refuses it.
type (
	Part  int // a read of an entry part
	Slot  int // a place to save in
	Loss  int // a loss that the stage records
	Param int // a use of a parameter
	Copy  int // a copy of a weight
)

// Microbatch is a stage's view of one microbatch for one call. It ends when the call returns: a
// copy that is used afterwards fails with ErrEnded. Only the call's goroutine may use it: take
// the tensors that other goroutines need before you start them. A call that fails on another
// goroutine ends the process, as any panic there does.
//
// Its calls return no error. A call that cannot succeed does not return: it records the error and
// unwinds, by a panic, to the runner, which ends the step with this error and releases
// everything. Deferred calls run, and may still call Release, Drop, Abandon and SetAccess. A
// stage that recovers the panic still ends the step.
type Microbatch[T any] struct {
	call       *frames.StageCall[T]
	generation uint64
}

// NewMicrobatch returns the view of the running call, for the runner.
func NewMicrobatch[T any](call *frames.StageCall[T]) Microbatch[T] {
	return Microbatch[T]{call, call.Frames.Generation()}
}

// open returns the call, for a method that fails after a failure.
func (m Microbatch[T]) open() *frames.StageCall[T] {
	if f := m.call.Frames; f.Generation() != m.generation {
		f.Fail(ErrEnded)
	}
	return m.call
}

// anyway returns the call, even after a failure.
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

// checkAnyway is Check for a method that also works after a failure. The first failure wins.
func (m Microbatch[T]) checkAnyway(err error) {
	if f := m.call.Frames; err != nil && !f.Failed(m.generation) {
		f.Fail(err)
	}
}

// refuse ends the call and the step with err and its subject. The runner adds the location.
func (m Microbatch[T]) refuse(err error, subject string, args ...any) {
	m.call.Frames.Fail(fmt.Errorf("%w: %s", err, fmt.Sprintf(subject, args...)))
}

// index maps a key to the stage's number, and refuses a key of another stage.
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

// Index returns the number of the microbatch in the batch, from 0, as in Entry.Index: data-parallel
// replicas share one batch. Random draws use it as a key (L9), so that no two replicas draw the
// same. It is neither the order of execution nor the number that a plan uses.
func (m Microbatch[T]) Index() int {
	c := m.anyway()
	return c.Frames.Index(c.Item)
}

// Seed returns the seed of random draws, which are keyed by it, Step, Index and the operation's
// name (L9).
func (m Microbatch[T]) Seed() uint64 { return m.anyway().Frames.Seed }

// Pass returns why the stage runs (L13).
func (m Microbatch[T]) Pass() Pass { return m.anyway().Access.Pass }

// AtMost returns n, a number of elements that depends on values, such as the number of tokens for
// an expert. Memory is planned before there are values, so a dry run returns bound, and the
// buffer allocated next is planned with this size. A step may ask for less there, but never for
// more.
func (m Microbatch[T]) AtMost(n, bound int) int { return m.open().Frames.AtMost(n, bound) }

// Part returns an entry part, borrowed for the call. It fails with ErrDropped after the part's
// last read on this rank, and with ErrUndeclared if the part is alive but the stage did not
// declare to read it in this kind of action.
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
			now = AtBackward // a plan that splits turns it into I
		}
		m.refuse(err, "part %q in %v: declare this read, Decl.Part(%[1]q, %[3]v)", c.Frames.Parts[read.Part], c.Kind, read.When()|now)
	}
	return h
}

// Retain adds a reference to h and returns it, so that a borrowed handle can be saved or
// returned. If a handle cannot be retained, Retain returns it unchanged, and handing it over
// fails.
func (m Microbatch[T]) Retain(h T) T {
	_ = m.open().Frames.Space.Retain(h) // Save and the runner refuse a handle without a reference.
	return h
}

// Release ends a reference that the stage owns, such as a workspace's.
func (m Microbatch[T]) Release(h T) {
	_, err := m.anyway().Frames.Space.Release(h)
	if errors.Is(err, memory.ErrNoPlain) {
		err = fmt.Errorf("%w: Release what is allocated or retained: what is borrowed ends by itself", err)
	}
	m.checkAnyway(err)
}

// Save hands h over to the backward, or in I to W. A stage may call it in a forward, in a
// recompute, and in I. In Eval, and in the first pass of a stage that recomputes, no action will
// take h, so that it is released at once. If Save fails, the stage still owns h. I may save in a
// slot that it has taken, which releases the old tensor.
func (m Microbatch[T]) Save(s Slot, h T) {
	by := ByBackward
	if c := m.open(); c.Kind == frames.InBackwardInput && c.Access.Pass != Recompute {
		by = ByWeight
	}
	m.SaveFor(by, s, h)
}

// SaveFor is Save for a given taker: a forward may save for W.
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

// Take lends the tensor saved in a slot for the rest of the action, once. The slot ends with the
// action, or with End.
func (m Microbatch[T]) Take(s Slot) T {
	c := m.open()
	slot, name := m.slot(s)
	switch {
	case slot.State == frames.Lent || slot.State == frames.Dropped:
		m.refuse(ErrTaken, "slot %q: take once and keep the handle for the call", name)
	case slot.State > frames.Lent:
		m.refuse(ErrAway, "slot %q: the plan must reload it before %v", name, c.Kind)
	case slot.State == frames.Empty:
		m.refuse(ErrEmpty, "slot %q: Save it in every forward", name)
	case !slot.Taker.TakenIn(c.Kind):
		m.refuse(ErrMisplaced, "Take in %v from slot %q: what is saved by %v is taken there", c.Kind, name, slot.Taker)
	}
	slot.State = frames.Lent
	return slot.Handle
}

// Move takes the tensor and ends the slot: the stage owns h, and releases it or hands it over.
// Use Take for tensors that the call only reads.
func (m Microbatch[T]) Move(s Slot) T {
	h := m.Take(s)
	slot, _ := m.slot(s)
	_, err := m.call.Frames.Yield(h)
	slot.End()
	m.Check(err)
	return h
}

// End ends a slot before its action does, to free memory: a slot that was taken, or one that this
// action could take but does not need.
func (m Microbatch[T]) End(s Slot) {
	c := m.open()
	slot, name := m.slot(s)
	if slot.State != frames.Lent && !(slot.State == frames.Full && c.Kind != frames.InForward && slot.Taker.TakenIn(c.Kind)) {
		m.refuse(ErrMisplaced, "End of slot %q, which holds nothing that this action may take", name)
	}
	m.Check(c.DropEarly(slot))
}

// Loss records a loss as two numbers, an unnormalised sum and its weight, which must be finite
// and not negative (L3). A loss that trains is recorded once per microbatch: a second record
// fails with ErrContribution. In a recompute Loss does nothing.
func (m Microbatch[T]) Loss(l Loss, sum, weight float64) {
	c := m.open()
	i := m.index("loss", int(l), c.Access.Losses)
	switch {
	case c.Access.Pass == Recompute:
		return
	case c.Kind != frames.InForward:
		m.refuse(ErrMisplaced, "loss %q in %v: record it in the forward", c.Declared.LossNames[i], c.Kind)
	}
	if err := c.Frames.Losses.Record(c.Declared.Losses[i], m.Index(), sum, weight); err != nil {
		m.refuse(err, "loss %q", c.Declared.LossNames[i])
	}
	m.recorded(i, weight > 0)
}

// recorded notes a record of a loss. A loss that trains may be recorded only once per microbatch:
// a second record would count twice in the divisor but once in the gradients.
func (m Microbatch[T]) recorded(i int, weighed bool) {
	c := m.call
	l := c.Loss(i)
	l.Weighed = l.Weighed || weighed
	if l.Last == c.Microbatch && c.Frames.Seeds[c.Declared.Losses[i]] != 0 {
		m.refuse(ErrContribution, "a second record of %q in a microbatch: call Loss once, with the sums and the weights added up", c.Declared.LossNames[i])
	}
	l.Last = c.Microbatch
}

// LossCell replaces Loss for a loss that is on the rank's device, so that nothing waits for it
// before step end (L3). It returns the device's cells (loss.Cells), borrowed for the call, and
// the index of the cell that the stage adds its loss to. It returns the zero T if the stage has
// to call Loss: the device has no cells, the loss is a Min or a Max, or nothing is recorded.
func (m Microbatch[T]) LossCell(l Loss) (cells T, index int) {
	c := m.open()
	i := m.index("loss", int(l), c.Access.Losses)
	index = c.Declared.Losses[i]
	if c.Frames.Cells == nil || c.Kind != frames.InForward || c.Access.Pass == Recompute || !c.Frames.Losses.OnDevice(index) {
		return cells, 0
	}
	m.recorded(i, true) // the host cannot see the weight
	return *c.Frames.Cells, index
}

// LossSeed returns the initial gradient of a loss's sum: the step's power-of-two scale times the
// loss's coefficient (L10). It is not divided by a weight: step end divides once. A metric has no
// seed: ErrUndeclared.
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

// Grad returns the gradient of a parameter to add to. The first call in a step sets it to zero
// (L5). trains is false if the parameter is frozen. Grad counts the contribution: call it once
// per microbatch, in B or W, and add.
func (m Microbatch[T]) Grad(p Param) (grad T, trains bool) {
	grad, write := m.contribute(p)
	if write == First {
		m.Check(m.call.Frames.Zero(grad))
	}
	return grad, write != Skip
}

// GradFirst is Grad for kernels that overwrite: it returns Skip, First or Add, and does not set
// the gradient to zero. With -tags invariants a gradient returned with First is NaN until it is
// overwritten, if the space can fill it (kernels.Host).
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
	if c.Reduced() {
		m.refuse(ErrContribution, "gradient of %q after its reduction over the replicas: the plan must reduce after the last B or W of the stage", param.Name)
	}
	use := c.Param(i)
	if use.Last == c.Microbatch {
		m.refuse(ErrContribution, "a second contribution to %q in a microbatch: ask for the gradient once, and add the sum", param.Name)
	}
	use.Last = c.Microbatch
	use.Count++
	if use.Written {
		return c.Grad(i), Add
	}
	use.Written = true
	return c.Grad(i), First
}

// Weight returns the weight of a parameter, borrowed for the call: Use.Weight, or, if the weights
// are sharded over replicas, the whole weight that the step has gathered. A stage that keeps a
// weight in a closure instead would read the shard.
func (m Microbatch[T]) Weight(p Param) T {
	c := m.open()
	return c.Weight(m.index("parameter", int(p), c.Access.Params))
}

// Frozen reports whether a parameter is frozen, so that the stage need not save anything for its
// gradient.
func (m Microbatch[T]) Frozen(p Param) bool {
	c := m.open()
	i, declared := c.Access.Params.At(int(p) - 1)
	return declared && c.Declared.Params[i].Contributes == Frozen
}

// WeightCopy returns a copy of a weight made by QUANTIZE, borrowed for the call. A forward may
// read a copy for the forward, and so may the recompute of a stage that declares that it
// recomputes. B and I may read a copy for the backward, but not in a recompute. It fails with
// ErrDropped if the plan has dropped the copy or not made it.
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

// Access returns the access of the running call. A decorator changes it for a call of its child
// and restores it afterwards.
func (m Microbatch[T]) Access() Access { return *m.anyway().Access }

// SetAccess sets the access of the running call, limited to the stage's own.
func (m Microbatch[T]) SetAccess(a Access) { m.anyway().SetAccess(a) }

// Hold hands over a tensor that a decorator passes from one child to another, as the runner holds
// tensors between stages. Drop ends it: the decorator must call Drop on every path out of its
// call.
func (m Microbatch[T]) Hold(h T) { m.Check(m.open().Pass(h)) }

// Yield reverses Hold: the decorator owns the reference again.
func (m Microbatch[T]) Yield(h T) {
	_, err := m.anyway().Frames.Yield(h)
	m.checkAnyway(err)
}

// Drop releases a tensor that Hold has handed over.
func (m Microbatch[T]) Drop(h T) { m.checkAnyway(m.anyway().DropPassed(h)) }

// Abandon ends a reference after a call that has failed: one that Hold has handed over if held is
// set, otherwise one that the stage owns. It never fails, because the first error is the one to
// report.
func (m Microbatch[T]) Abandon(h T, held bool) {
	c := m.anyway()
	if held {
		_ = c.DropPassed(h)
	} else {
		_, _ = c.Frames.Space.Release(h)
	}
}
