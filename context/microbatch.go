package batchctx

import (
	"errors"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/internal/engine/invariants"
)

// Keys of a stage's declarations, made by stages.Decl. They start at 1 and are valid only for their
// stage. 0 is not a key: Wants and Frozen return false for it, and every other call fails.
type (
	Part  int // a read of an entry part
	Slot  int // a slot for a saved tensor
	Loss  int // a loss that the stage records
	Param int // a use of a parameter
	Copy  int // a copy of a weight
)

// Microbatch is a stage's view of one microbatch for one call. It ends when the call returns: a copy that
// is used afterwards fails with ErrEnded. Only the call's goroutine may use it: take the tensors that
// other goroutines need before you start them. A method that fails on another goroutine crashes the
// process, as any panic there would.
//
// The methods return no errors. A method that cannot succeed does not return: it records the error and
// panics, which unwinds to the runner, which ends the step with this error and releases everything.
// Deferred calls run. They may still call Release, Drop, Unhold, ReleaseAfterFailure, Access, SetAccess, Step, Seed,
// Pass, Records and Index. The step ends even if the stage recovers the panic.
type Microbatch[T any] frames.View[T]

func (m Microbatch[T]) view() view[T] { return view[T]{frames.View[T](m)} }

// live returns the call, and fails if the view has ended or failed.
func (m Microbatch[T]) live() *frames.StageCall[T] { return frames.View[T](m).Live() }

// Check ends the call and the step with err, unless err is nil.
func (m Microbatch[T]) Check(err error) { m.view().check(err) }

// Must returns h if err is nil, and ends the call and the step with err if it is not:
// mb.Must(device.Alloc(...)).
func (m Microbatch[T]) Must(h T, err error) T {
	m.Check(err)
	return h
}

// Step returns the number of the step.
func (m Microbatch[T]) Step() int64 { return m.view().LiveOrFailed().Frames.Step }

// Seed returns the seed of random draws, which are keyed by the seed, Step, Index and the operation's name (L9).
func (m Microbatch[T]) Seed() uint64 { return m.view().LiveOrFailed().Frames.Config.Seed }

// Pass returns the reason why the stage runs (L13).
func (m Microbatch[T]) Pass() Pass { return m.view().LiveOrFailed().Access.Pass }

// Records reports whether statistics that the stage collects itself, such as the maximum of a result, may include this
// call. They may do so only in Train, and not if an audit repeats the microbatch (runner.Config.Audit).
func (m Microbatch[T]) Records() bool {
	c := m.view().LiveOrFailed()
	return c.Access.Pass == Train && !c.Frames.Repeats(c.BatchIndex)
}

// Release releases a reference that the stage owns, such as one to a workspace.
func (m Microbatch[T]) Release(h T) { m.view().release(h) }

// Index returns the number of the microbatch in the batch, counted from 0, like Entry.Index.
// Data-parallel replicas share one batch, and random draws use the number as a key (L9), so no two
// replicas draw the same numbers. It is neither the microbatch's place in the order of execution nor the
// number that a plan uses.
func (m Microbatch[T]) Index() int {
	c := m.view().LiveOrFailed()
	return c.Frames.Index(c.BatchIndex)
}

// AtMost returns n, a number of elements that depends on values, such as the number of tokens for
// an expert. Memory is planned before the values exist, so in a dry run AtMost returns bound, and
// the next allocation is planned with this size. In a step the allocation may be smaller, but never
// larger.
func (m Microbatch[T]) AtMost(n, bound int) int { return m.live().Frames.AtMost(n, bound) }

// Part returns an entry part, borrowed for the call. It fails with ErrDropped after the part's last read
// on this rank, and with ErrUndeclared if the rank still holds the part but the stage has not declared
// that it reads the part in this kind of action.
func (m Microbatch[T]) Part(p Part) T {
	c := m.live()
	read := c.Declared.Reads[m.view().index("read", int(p), c.Access.Reads)]
	h, alive := c.Part(read.Part)
	err, now := error(nil), frames.AtCall(c.Kind)
	if !alive {
		err = ErrDropped
	} else if read.When()&now == 0 {
		err = ErrUndeclared
	}
	if err != nil {
		if c.Kind == frames.InBackward {
			now = AtBackward // I if the plan splits
		}
		m.view().refuse(err, "part %q in %v: declare this read, Decl.Part(%[1]q, %[3]v)", c.Frames.Config.Parts[read.Part], c.Kind, read.When()|now)
	}
	return h
}

// Retain adds a reference to h and returns it, so that a borrowed handle can be saved or
// returned. If a handle cannot be retained, Retain returns it unchanged, and handing it over
// fails.
func (m Microbatch[T]) Retain(h T) T {
	_ = m.live().Frames.Config.Space.Retain(h) // Save and the runner refuse a handle without a reference.
	return h
}

// Save hands h over to the backward or, if called in I, to W. A stage may call it in a forward, in a
// recompute, and in I. A slot may declare that W takes h, or that both halves of the backward do
// (Decl.Slot). In Eval, and in the first pass of a stage that recomputes, no action takes h, so Save releases it
// immediately: use h before the call, or Retain it. If Save fails, the stage still owns h. An I may save into a slot
// that it has taken, which releases the old tensor.
func (m Microbatch[T]) Save(s Slot, h T) {
	c := m.live()
	by := ByBackward
	if i, declared := c.Access.Slots.At(int(s) - 1); declared && i < len(c.Declared.Consumers) {
		by = c.Declared.Consumers[i]
	}
	if c.Kind == frames.InBackwardInput && c.Access.Pass != Recompute {
		by = ByWeight
	}
	m.SaveFor(by, s, h)
}

// SaveFor is Save with an explicit consumer, so that a forward can save for W.
func (m Microbatch[T]) SaveFor(by Consumer, s Slot, h T) {
	c := m.live()
	slot, name := m.slot(s)
	if c.Access.Discard || c.Access.Pass == Eval {
		m.view().FailOnce(c.Discard(name, h))
		return
	}
	allowed := c.Kind == frames.InForward || c.Access.Pass == Recompute || c.Kind == frames.InBackwardInput && by == ByWeight
	if !allowed {
		m.view().refuse(ErrMisplaced, "Save in slot %q: no action would take it: save in a forward, or in I for W", name)
	}
	if slot.State == frames.Full {
		m.view().refuse(ErrOccupied, "slot %q holds a saved tensor already: declare another slot", name)
	}
	taken := *slot
	if err := c.Frames.Hold(slot, h, frames.SavedClasses); errors.Is(err, ErrClass) {
		m.view().refuse(err, "Save in slot %q", name)
	} else if err != nil {
		m.view().refuse(err, "Save in slot %q takes over a reference: Retain a borrowed handle first", name)
	}
	if slot.Optional = c.Access.Frozen; slot.Optional {
		by = ByBackward
	}
	slot.Consumer = by
	if taken.State == frames.Lent { // released after h is held: they may be the same tensor
		m.Check(c.Drop(&taken, effects.Saved))
	}
}

// slot returns a slot and its name.
func (m Microbatch[T]) slot(s Slot) (*frames.Cell[T], string) {
	c := m.view().Call()
	i := m.view().index("slot", int(s), c.Access.Slots)
	name := c.Declared.Slots[i]
	slot := c.Slot(i)
	if slot == nil {
		m.view().refuse(ErrTaken, "slot %q of a microbatch that has ended", name)
	}
	return slot, name
}

// Take lends the tensor saved in a slot to the rest of the action. A slot can be taken only once, or once
// in I and once in W if the slot is for both (Decl.Slot). The tensor is released at the end of the last
// action that takes it, or by ReleaseSaved.
func (m Microbatch[T]) Take(s Slot) T {
	c := m.live()
	slot, name := m.slot(s)
	switch {
	case slot.State == frames.Lent || slot.State == frames.Dropped:
		m.view().refuse(ErrTaken, "slot %q: take once and keep the handle for the call", name)
	case slot.State > frames.Lent:
		m.view().refuse(ErrOffloaded, "slot %q: the plan must reload it before %v", name, c.Kind)
	case slot.State == frames.Empty:
		m.view().refuse(ErrEmpty, "slot %q: Save it in every forward", name)
	case !slot.Consumer.TakenIn(c.Kind):
		m.view().refuse(ErrMisplaced, "Take in %v from slot %q, which was saved for another action (%v): take it there", c.Kind, name, slot.Consumer)
	}
	slot.State = frames.Lent
	return slot.Handle
}

// Move takes the tensor out of a slot, which ends the slot: the stage then owns the tensor, and must
// release it or hand it over. It fails in I for a slot that W takes too. Use Take for tensors that the call
// only reads.
func (m Microbatch[T]) Move(s Slot) T {
	h := m.Take(s)
	slot, name := m.slot(s)
	m.refuseShared(slot, name)
	_, err := m.view().Call().Frames.Unhold(h)
	slot.End()
	m.Check(err)
	return h
}

// ReleaseSaved releases a slot's tensor before the end of the action, to free memory. The action must have taken
// the slot, or be allowed to take it. ReleaseSaved fails in I for a slot that W takes too.
func (m Microbatch[T]) ReleaseSaved(s Slot) {
	c := m.live()
	slot, name := m.slot(s)
	if slot.State != frames.Lent && !(slot.State == frames.Full && c.Kind != frames.InForward && slot.Consumer.TakenIn(c.Kind)) {
		m.view().refuse(ErrMisplaced, "ReleaseSaved of slot %q, which holds no tensor that this action may take", name)
	}
	m.refuseShared(slot, name)
	m.Check(c.DropEarly(slot))
}

// refuseShared refuses to end a slot in I that W takes as well.
func (m Microbatch[T]) refuseShared(slot *frames.Cell[T], name string) {
	if m.view().Call().Kind == frames.InBackwardInput && slot.Consumer == frames.ByBoth {
		m.view().refuse(ErrMisplaced, "the end of slot %q in I, which is also for W: Take it in both, and end it in W", name)
	}
}

// Loss records a loss as two numbers, an unnormalized sum and its weight, which must be finite and not
// negative (L3). A training loss may be recorded only once per microbatch: a second record fails with
// ErrContribution. In a recompute Loss does nothing; in any other call but a forward, it fails with
// ErrMisplaced.
func (m Microbatch[T]) Loss(l Loss, sum, weight float64) {
	m.LossSums(l, []float64{sum}, []float64{weight})
}

// LossSums is Loss for a microbatch of several sequences: it records a sum and a weight for each of them.
// sums and weights must have the same length. They are added exactly, so the loss does not depend on which
// sequences share a microbatch (L9).
func (m Microbatch[T]) LossSums(l Loss, sums, weights []float64) {
	c := m.live()
	i := m.view().index("loss", int(l), c.Access.Losses)
	if c.Frames.LossDigest != nil && c.Kind == frames.InForward {
		c.DigestLoss(sums, weights)
	}
	switch {
	case c.Access.Pass == Recompute:
		return
	case c.Kind != frames.InForward:
		m.view().refuse(ErrMisplaced, "loss %q in %v: record it in the forward", c.Declared.LossNames[i], c.Kind)
	}
	weighed := false
	for k, sum := range sums {
		if err := c.Frames.Config.Losses.Record(c.Declared.Losses[i], m.Index(), sum, weights[k]); err != nil {
			m.view().refuse(err, "loss %q", c.Declared.LossNames[i])
		}
		weighed = weighed || weights[k] > 0
	}
	m.noteRecord(i, weighed)
}

// noteRecord notes that a loss was recorded. A training loss may be recorded only once per microbatch: a
// second record would count twice in the divisor but once in the gradients.
func (m Microbatch[T]) noteRecord(i int, weighed bool) {
	c := m.view().Call()
	l := c.Loss(i)
	l.Weighed = l.Weighed || weighed
	if l.Last == c.Microbatch && c.Frames.Config.Seeds[c.Declared.Losses[i]] != 0 {
		m.view().refuse(ErrContribution, "a second record of %q in a microbatch: call Loss once, with the total sum and weight", c.Declared.LossNames[i])
	}
	l.Last = c.Microbatch
}

// LossCell replaces Loss for a loss whose value is on the rank's device, so that no goroutine waits for
// the value before step end (L3). It returns the device's cells (loss.DeviceCells), borrowed for the call, and
// the index of the cell to which the stage adds its loss. It returns the zero T if the stage must call
// Loss instead, because the device has no cells, the loss is a Min or a Max, or this call records no
// losses.
func (m Microbatch[T]) LossCell(l Loss) (cells T, index int) {
	c := m.live()
	i := m.view().index("loss", int(l), c.Access.Losses)
	index = c.Declared.Losses[i]
	if c.Frames.Config.Cells == nil || c.Kind != frames.InForward || c.Access.Pass == Recompute || !c.Frames.Config.Losses.OnDevice(index) {
		return cells, 0
	}
	m.noteRecord(i, true) // the host cannot see the weight
	return *c.Frames.Config.Cells, index
}

// LossSeed returns the initial gradient of a loss's sum: the step's power-of-two scale times the loss's
// coefficient (L10). It is not divided by a weight, because step end divides once. A metric has no seed,
// so LossSeed fails with ErrUndeclared.
func (m Microbatch[T]) LossSeed(l Loss) float32 {
	c := m.live()
	i := m.view().index("loss", int(l), c.Access.Losses)
	seed := c.Frames.Config.Seeds[c.Declared.Losses[i]]
	if seed == 0 {
		m.view().refuse(ErrUndeclared, "the seed of %q, which is a metric: declare it with Decl.Loss and give it a Coefficient in Losses, or leave it out of the backward", c.Declared.LossNames[i])
	}
	c.Loss(i).Asked = true
	return seed
}

// Grad returns the gradient of a parameter, to which the stage adds. The first call in a step sets the
// gradient to zero (L5). trains is false if the parameter is frozen. Every call counts as a contribution: call Grad
// once per microbatch, in B or W.
func (m Microbatch[T]) Grad(p Param) (grad T, trains bool) {
	grad, write := m.contribute(p)
	if write == First {
		m.Check(m.view().Call().Frames.Config.Zero(grad))
	}
	return grad, write != Skip
}

// GradFirst is like Grad, but for kernels that can overwrite the gradient: it returns Skip, First or Add,
// and does not set the gradient to zero. With -tags invariants a gradient returned with First is NaN
// until it is overwritten, if the space supports it (kernels.Host).
func (m Microbatch[T]) GradFirst(p Param) (grad T, write Write) {
	grad, write = m.contribute(p)
	if invariants.Enabled && write == First && m.view().Call().Frames.Config.Poison != nil {
		m.Check(m.view().Call().Frames.Config.Poison(grad))
	}
	return grad, write
}

// contribute counts a contribution to a parameter's gradient.
func (m Microbatch[T]) contribute(p Param) (grad T, write Write) {
	c := m.live()
	i := m.view().index("parameter", int(p), c.Access.Params)
	param := &c.Declared.Params[i]
	if param.Contributes == Frozen {
		return grad, Skip
	}
	if c.Kind != frames.InBackward && c.Kind != frames.InBackwardWeight {
		m.view().refuse(ErrMisplaced, "gradient of %q in %v: contribute in B or W", param.Name, c.Kind)
	}
	if c.Reduced() {
		m.view().refuse(ErrContribution, "gradient of %q after its reduction over the replicas: the plan must reduce after the last B or W of the stage", param.Name)
	}
	use := c.Param(i)
	if use.Last == c.Microbatch {
		m.view().refuse(ErrContribution, "a second contribution to %q in a microbatch: ask for the gradient once, and add the sum", param.Name)
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
// are sharded over replicas, the whole weight that the step has gathered. A stage that kept a
// weight in a closure would read only the shard.
func (m Microbatch[T]) Weight(p Param) T {
	c := m.live()
	return c.Weight(m.view().index("parameter", int(p), c.Access.Params))
}

// Frozen reports whether a parameter is frozen. The stage need not save anything for the gradient
// of a frozen parameter.
func (m Microbatch[T]) Frozen(p Param) bool {
	c := m.live()
	i, declared := c.Access.Params.At(int(p) - 1)
	return declared && c.Declared.Params[i].Contributes == Frozen
}

// WeightCopy returns a copy of a weight made by QUANTIZE, borrowed for the call. A forward may read a
// copy for the forward, and so may the recompute of a stage that declares that it recomputes. B and I may
// read a copy for the backward, but not in a recompute. Other calls fail with ErrMisplaced. WeightCopy fails
// with ErrDropped if the plan has dropped the copy or has not made it.
func (m Microbatch[T]) WeightCopy(k Copy) T {
	c := m.live()
	i := m.view().index("copy of a weight", int(k), c.Access.Copies)
	w, recomputes := &c.Declared.WeightCopies[i], c.Access.Pass == Recompute
	readable := c.Kind == frames.InForward || recomputes && c.Declared.Recomputes
	if w.At == AtBackward {
		readable = !recomputes && (c.Kind == frames.InBackward || c.Kind == frames.InBackwardInput)
	}
	cell := c.WeightCopy(i)
	switch {
	case !readable:
		m.view().refuse(ErrMisplaced, "copy of %q for the %s in %v", w.Name, w.Direction(), c.Kind)
	case !cell.Held():
		m.view().refuse(ErrDropped, "copy of %q for the %s", w.Name, w.Direction())
	}
	return cell.Handle
}

// Access returns the access of the running call. A decorator changes it for a call to its child and
// restores it afterwards.
func (m Microbatch[T]) Access() Access { return Access(*m.view().LiveOrFailed().Access) }

// SetAccess sets the access of the running call, limited to the stage's own access.
func (m Microbatch[T]) SetAccess(a Access) { m.view().LiveOrFailed().SetAccess(frames.Access(a)) }

// Hold hands over a tensor that a decorator passes from one child to another: the step holds it, as it
// holds tensors between stages, until Drop. The decorator must call Drop on every path out of its call.
func (m Microbatch[T]) Hold(h T) { m.Check(m.live().Pass(h)) }

// Unhold reverses Hold: the decorator owns the reference again.
func (m Microbatch[T]) Unhold(h T) {
	_, err := m.view().LiveOrFailed().Frames.Unhold(h)
	m.view().FailOnce(err)
}

// Drop releases a tensor that the decorator has handed over with Hold.
func (m Microbatch[T]) Drop(h T) { m.view().FailOnce(m.view().LiveOrFailed().DropPassed(h)) }

// ReleaseAfterFailure releases a reference after a failed call. held says whether the reference was handed over with
// Hold; if not, the stage owns it. ReleaseAfterFailure never fails, because the step reports the first error.
func (m Microbatch[T]) ReleaseAfterFailure(h T, held bool) {
	c := m.view().LiveOrFailed()
	if held {
		_ = c.DropPassed(h)
	} else {
		_, _ = c.Frames.Config.Space.Release(h)
	}
}
