package frames

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/invariants"
	"github.com/weir-ml/weir/memory"
)

// View is what one call of a stage sees of one microbatch, for batchctx.Microbatch.
type View[T any] struct {
	ctx        *Frames[T]
	layout     *Layout[T]
	stage      int
	microbatch int // as the plan numbers it
	item       int // as the batch does
	call       Call
	frame      *frame[T]
	scope      *Scope // the stage's own, or narrowed
	narrowed   Scope
}

// Scope is which of the stage's slots, reads, losses, parameters and copies of weights a
// call may reach: a decorator gives each child those of its own, numbered from 0. A child
// in a Discard scope saves nothing: what it saves ends at once. A child in a Frozen
// scope has no W: what it saves for W its backward takes.
type Scope struct {
	Slots, Reads, Losses, Params, Copies Range

	Pass    Pass
	Discard bool
	Frozen  bool
}

// Range is Count numbers from First on.
type Range struct{ First, Count int }

// Sub returns count numbers of r from its own number first on.
func (r Range) Sub(first, count int) Range { return Range{r.First + first, count} }

// within returns the part of r that is in own, which begins at 0.
func (r Range) within(own Range) Range {
	if r.First < 0 || r.First > own.Count {
		return Range{}
	}
	return Range{r.First, min(r.Count, own.Count-r.First)}
}

// at returns what a child's number i is to the stage.
func (r Range) at(i int) (int, bool) { return r.First + i, i >= 0 && i < r.Count }

// Scope returns the scope of the running call, for a decorator to change and
// restore around the calls of its child.
func (m *View[T]) Scope() Scope { return *m.scope }

// SetScope sets the scope. What it has beyond the stage's own is cut off.
func (m *View[T]) SetScope(s Scope) {
	own := &m.ctx.stages[m.stage].scope
	s.Slots, s.Reads = s.Slots.within(own.Slots), s.Reads.within(own.Reads)
	s.Losses, s.Params = s.Losses.within(own.Losses), s.Params.within(own.Params)
	s.Copies = s.Copies.within(own.Copies)
	m.narrowed = s
	m.scope = &m.narrowed
}

// Frames returns what the view is of.
func (m *View[T]) Frames() *Frames[T] { return m.ctx }

// Step returns the number of the step.
func (m *View[T]) Step() int64 { return m.ctx.step }

// Index returns the number of the microbatch in the batch, from 0, as its source was told
// (Entry.Index): not the order it runs in, nor the number that a plan for several
// copies of the model gives it.
func (m *View[T]) Index() int { return m.item }

// Global returns the number of the microbatch among those of all replicas in the
// step: what random draws are keyed by, so that no two replicas draw the same.
func (m *View[T]) Global() int64 {
	return int64(m.item)*m.ctx.replicas + m.ctx.replica
}

// Seed returns the seed that random draws are keyed by, together with Step,
// Global and the operation's name (L9).
func (m *View[T]) Seed() uint64 { return m.ctx.seed }

// Pass returns why the stage runs (L13).
func (m *View[T]) Pass() Pass { return m.scope.Pass }

// Part returns an entry part, by the stage's own numbering of its reads. The
// handle is borrowed for the call. The error is ErrDropped after the part's last
// read on this rank, ErrUndeclared where the part is alive and the stage did not
// declare to read it in this kind of action.
func (m *View[T]) Part(read int) (T, error) {
	var zero T
	if m.call == None {
		return zero, ErrEnded
	}
	i, declared := m.scope.Reads.at(read)
	if !declared {
		return zero, m.undeclared("read", read, m.scope.Reads)
	}
	r := m.layout.Reads[i]
	part := m.ctx.part(m.item, r.Part)
	if !part.held() || m.ctx.entryOf[m.item&m.ctx.entryMask] != m.microbatch {
		return zero, m.undeclaredRead(ErrDropped, r)
	}
	if r.at()&atCall(m.call) == 0 {
		return zero, m.undeclaredRead(ErrUndeclared, r)
	}
	return part.handle, nil
}

// undeclaredRead says how to declare a read at this kind of action too.
func (m *View[T]) undeclaredRead(err error, r Read) error {
	at := atCall(m.call)
	if m.call == InBackward {
		at = AtBackward // of which a plan that splits makes I
	}
	return m.fault(err, "part %q in %v: declare this read, Decl.Part(%[1]q, %[3]v)", m.ctx.parts[r.Part], m.call, r.at()|at)
}

func (r Read) at() At {
	if r.At == 0 {
		return AtForward
	}
	return r.At
}

// Retain adds a reference to h and returns it, so that a borrowed handle can be
// saved or returned. A handle that cannot be retained comes back as it is, and
// handing it over fails.
func (m *View[T]) Retain(h T) T {
	_ = m.ctx.space.Retain(h) // Save and the runner refuse a handle without a reference.
	return h
}

// Release ends a reference of the stage's own, such as a workspace's.
func (m *View[T]) Release(h T) error {
	_, err := m.ctx.space.Release(h)
	if errors.Is(err, memory.ErrNoPlain) {
		return m.fault(err, "Release what is allocated or retained: what is borrowed ends by itself")
	}
	return err
}

// Save hands h over until the action that takes it. It may be called in a
// forward, in a recompute, and in I for W. In Eval, and in the first pass of a
// stage that recomputes, nothing will take it and h ends at once. After an error
// h is still the stage's. A slot that the action has taken may be saved in again, by I for
// W: what was in it ends after h is held, so that the same tensor stays.
func (m *View[T]) Save(slot int, by Taker, h T) error {
	cell, err := m.slot(slot)
	if err != nil {
		return err
	}
	if m.scope.Discard || m.scope.Pass == Eval {
		return m.Release(h)
	}
	allowed := m.call == InForward || m.scope.Pass == Recompute || m.call == InBackwardInput && by == ByWeight
	if !allowed {
		return m.fault(ErrMisplaced, "Save in slot %q: nothing would take it: save in a forward, or in I for W", m.slotName(slot))
	}
	if cell.state == full {
		return m.fault(ErrOccupied, "slot %q was saved in already: declare another one", m.slotName(slot))
	}
	taken := *cell
	if err := m.ctx.hold(cell, h, ofSaved); errors.Is(err, ErrClass) {
		return m.fault(err, "Save in slot %q", m.slotName(slot))
	} else if err != nil {
		return m.fault(err, "Save in slot %q takes over a reference: Retain what is borrowed", m.slotName(slot))
	}
	if cell.optional = m.scope.Frozen; cell.optional {
		by = ByBackward
	}
	cell.taker = by
	if taken.state == lent {
		return m.ctx.drop(&taken, m.ctx.running.stage, effects.Saved)
	}
	return nil
}

// Taker returns what takes a thing that is saved now: the backward, or in I the W.
func (m *View[T]) Taker() Taker {
	if m.call == InBackwardInput && m.scope.Pass != Recompute {
		return ByWeight
	}
	return ByBackward
}

// Take lends what was saved in a slot for the rest of the action. The slot ends
// with the action, or with End.
func (m *View[T]) Take(slot int) (T, error) {
	var zero T
	cell, err := m.slot(slot)
	if err != nil {
		return zero, err
	}
	switch {
	case cell.state == lent || cell.state == dropped:
		return zero, m.fault(ErrTaken, "slot %q: take once and keep the handle for the call", m.slotName(slot))
	case cell.state == empty:
		return zero, m.fault(ErrEmpty, "slot %q: Save it in every forward", m.slotName(slot))
	case !cell.taker.takenIn(m.call):
		return zero, m.fault(ErrMisplaced, "Take in %v from slot %q: what is saved by %v is taken there", m.call, m.slotName(slot), cell.taker)
	}
	cell.state = lent
	return cell.handle, nil
}

// Move is Take of a slot that ends with it: the reference is the stage's own from then on.
func (m *View[T]) Move(slot int) (T, error) {
	h, err := m.Take(slot)
	if err != nil {
		return h, err
	}
	cell, err := m.slot(slot)
	if err == nil {
		_, err = m.ctx.yield(h)
		cell.end()
	}
	return h, err
}

// End ends a slot before its action does, to make room: one that was taken, or one that
// this action could take and does not need.
func (m *View[T]) End(slot int) error {
	cell, err := m.slot(slot)
	if err != nil {
		return err
	}
	if cell.state != lent && !(cell.state == full && m.call != InForward && cell.taker.takenIn(m.call)) {
		return m.fault(ErrMisplaced, "End of slot %q, which holds nothing that this action may take", m.slotName(slot))
	}
	noticed := m.ctx.suspect
	err = m.ctx.drop(cell, m.ctx.running.stage, effects.Saved)
	if m.ctx.book != nil { // a reference of the stage's own may end within the call: Settle looks then
		m.ctx.suspect = noticed
	}
	return err
}

// Hold hands h over for a decorator that passes it from one child to another, as
// the runner holds what passes between stages. Drop ends it: the decorator must
// see to that on every way out of its call.
func (m *View[T]) Hold(h T) error {
	var place cell[T]
	return m.ctx.hold(&place, h, ofPassing)
}

// Yield gives back what Hold has handed over: the reference is the decorator's again.
func (m *View[T]) Yield(h T) error {
	_, err := m.ctx.yield(h)
	return err
}

// Abandon ends a reference on the way out of a call that has failed: one that Hold has
// handed over where held is set, else one of the stage's own. It never fails: the first
// error is the one to tell.
func (m *View[T]) Abandon(h T, held bool) {
	if held {
		_ = m.Drop(h)
	} else {
		_ = m.Release(h)
	}
}

// Drop ends what Hold has handed over.
func (m *View[T]) Drop(h T) error {
	place := cell[T]{handle: h, state: full}
	return m.ctx.drop(&place, m.ctx.running.stage, passing)
}

// Loss records a loss as two numbers: an unnormalised sum and its weight, finite
// and not negative (L3). In a recompute it does nothing.
func (m *View[T]) Loss(loss int, sum, weight float64) error {
	i, l, err := m.loss(loss)
	if err != nil {
		return err
	}
	if m.call != InForward {
		if m.scope.Pass == Recompute {
			return nil
		}
		return m.fault(ErrMisplaced, "loss %q in %v: record it in the forward", m.layout.LossNames[i], m.call)
	}
	if m.scope.Pass == Recompute {
		return nil
	}
	if err := m.ctx.losses.Record(m.layout.Losses[i], m.item, sum, weight); err != nil {
		return m.fault(err, "loss %q", m.layout.LossNames[i])
	}
	l.weighed = l.weighed || weight > 0
	return m.once(i, l)
}

// once notes a record of a loss. What trains is recorded once in a microbatch: what is
// recorded twice counts twice in the divisor, and once in the gradients.
func (m *View[T]) once(i int, l *losses) error {
	if l.last == m.microbatch && m.ctx.seeds[m.layout.Losses[i]] != 0 {
		return m.fault(ErrContribution, "a second record of %q in a microbatch: call Loss once, with the sums and the weights added up", m.layout.LossNames[i])
	}
	l.last = m.microbatch
	return nil
}

// LossCell returns the cells of losses in the rank's device, and the number of the one that the
// stage adds to in place of Loss. It returns none where two numbers are wanted: the device
// has no cells, the loss is a Min or a Max, or nothing is recorded.
func (m *View[T]) LossCell(loss int) (cells T, index int, err error) {
	i, l, err := m.loss(loss)
	if err != nil || m.ctx.cells == nil || m.call != InForward || m.scope.Pass == Recompute || !m.ctx.losses.OnDevice(m.layout.Losses[i]) {
		return cells, 0, err
	}
	l.weighed = true // as far as the host knows
	return *m.ctx.cells, m.layout.Losses[i], m.once(i, l)
}

// LossSeed returns what the gradient of a loss's sum starts with: the step's
// power-of-two scale times the loss's coefficient (L10). It is not divided by any weight:
// that happens once, at step end. A metric has none: ErrUndeclared.
func (m *View[T]) LossSeed(loss int) (float32, error) {
	i, l, err := m.loss(loss)
	if err != nil {
		return 0, err
	}
	seed := m.ctx.seeds[m.layout.Losses[i]]
	if seed == 0 {
		return 0, m.fault(ErrUndeclared, "the seed of %q, which is a metric: declare it with Decl.Loss and give it a Coefficient in Losses, or leave it out of the backward", m.layout.LossNames[i])
	}
	l.asked = true
	return seed, nil
}

// Grad returns the gradient of a parameter to write, and how: Skip, First or
// Add (L5). It counts the contribution: ask once per microbatch, in B or W, and
// write.
func (m *View[T]) Grad(param int) (T, Write, error) {
	var zero T
	if m.call == None {
		return zero, Skip, ErrEnded
	}
	i, declared := m.scope.Params.at(param)
	if !declared {
		return zero, Skip, m.undeclared("parameter", param, m.scope.Params)
	}
	p := &m.layout.Params[i]
	if p.Contributes == Frozen {
		return zero, Skip, nil
	}
	if m.call != InBackward && m.call != InBackwardWeight {
		return zero, Skip, m.fault(ErrMisplaced, "gradient of %q in %v: contribute in B or W", p.Name, m.call)
	}
	use := &m.ctx.stages[m.stage].uses[i]
	if use.last == m.microbatch {
		return zero, Skip, m.fault(ErrContribution, "a second contribution to %q in a microbatch: ask for the gradient once, and add the sum", p.Name)
	}
	use.last = m.microbatch
	use.count++
	if !use.written {
		use.written = true
		if invariants.Enabled && m.ctx.poison != nil {
			return p.Grad, First, m.ctx.poison(p.Grad)
		}
		return p.Grad, First, nil
	}
	return p.Grad, Add, nil
}

// Sum is Grad for a stage that adds: the gradient is set to zero before the first
// contribution. trains is false where the parameter is frozen.
func (m *View[T]) Sum(param int) (grad T, trains bool, err error) {
	grad, write, err := m.Grad(param)
	if err == nil && write == First {
		err = m.ctx.zero(grad)
	}
	return grad, write != Skip, err
}

// Frozen reports whether a parameter is frozen, so that nothing need be saved
// for its gradient.
func (m *View[T]) Frozen(param int) bool {
	i, declared := m.scope.Params.at(param)
	return m.layout != nil && declared && m.layout.Params[i].Contributes == Frozen
}

func (m *View[T]) slot(slot int) (*cell[T], error) {
	if m.call == None {
		return nil, ErrEnded
	}
	i, declared := m.scope.Slots.at(slot)
	if !declared {
		return nil, m.undeclared("slot", slot, m.scope.Slots)
	}
	if !m.frame.open || m.frame.microbatch != m.microbatch {
		return nil, m.fault(ErrTaken, "slot %q of a microbatch that is over", m.slotName(slot))
	}
	return &m.frame.slots[i], nil
}

// loss returns which loss of the stage a key of the scope is.
func (m *View[T]) loss(loss int) (int, *losses, error) {
	if m.call == None {
		return 0, nil, ErrEnded
	}
	i, declared := m.scope.Losses.at(loss)
	if !declared {
		return 0, nil, m.undeclared("loss", loss, m.scope.Losses)
	}
	return i, &m.ctx.stages[m.stage].losses[i], nil
}

// fault says what an error is about. Where it happened the runner says.
func (m *View[T]) fault(err error, about string, args ...any) error {
	return fmt.Errorf("%w: %s", err, fmt.Sprintf(about, args...))
}

// undeclared says that a key is not one of the stage's.
func (m *View[T]) undeclared(what string, i int, own Range) error {
	return m.fault(ErrUndeclared, "%s %d where the stage declares %d: keys are those of its own Decl", what, i+1, own.Count)
}

// slotName returns what a slot of the scope is called.
func (m *View[T]) slotName(slot int) string { return m.layout.Slots[m.scope.Slots.First+slot] }

// end makes the view refuse everything.
func (m *View[T]) end() { m.call, m.layout = None, nil }
