package batchctx

import "github.com/weir-ml/weir/internal/frames"

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
// Abandon and SetScope. A stage that recovers the panic ends the step all the same.
type Microbatch[T any] struct {
	view       *frames.View[T]
	generation uint64
}

// Of returns the view of the call that runs. It is the runner's.
func Of[T any](view *frames.View[T]) Microbatch[T] {
	return Microbatch[T]{view, view.Frames().Generation()}
}

// open returns the view for a call that a failure refuses.
func (m Microbatch[T]) open() *frames.View[T] {
	if c := m.view.Frames(); c.Generation() != m.generation {
		c.Fail(ErrEnded)
	}
	return m.view
}

// anyway returns the view, failed or not.
func (m Microbatch[T]) anyway() *frames.View[T] {
	if c := m.view.Frames(); c.Generation() != m.generation && !c.Failed(m.generation) {
		c.Fail(ErrEnded)
	}
	return m.view
}

// Check ends the call and the step with err, unless it is nil.
func (m Microbatch[T]) Check(err error) {
	if err != nil {
		m.view.Frames().Fail(err)
	}
}

// checkAnyway is Check for a call that works on a failed view, where the first failure
// wins.
func (m Microbatch[T]) checkAnyway(err error) {
	if c := m.view.Frames(); err != nil && !c.Failed(m.generation) {
		c.Fail(err)
	}
}

// Must returns h where err is nil, and ends the call and the step with err where it is
// not: mb.Must(device.Alloc(...)).
func (m Microbatch[T]) Must(h T, err error) T {
	m.Check(err)
	return h
}

// Step returns the number of the step.
func (m Microbatch[T]) Step() int64 { return m.anyway().Step() }

// Index returns the number of the microbatch in the batch, from 0, as its source was told
// (Entry.Index): not the order it runs in, nor the number that a plan for several
// copies of the model gives it.
func (m Microbatch[T]) Index() int { return m.anyway().Index() }

// Global returns the number of the microbatch among those of all replicas in the
// step: what random draws are keyed by, so that no two replicas draw the same.
func (m Microbatch[T]) Global() int64 { return m.anyway().Global() }

// Seed returns the seed that random draws are keyed by, together with Step,
// Global and the operation's name (L9).
func (m Microbatch[T]) Seed() uint64 { return m.anyway().Seed() }

// Pass returns why the stage runs (L13).
func (m Microbatch[T]) Pass() Pass { return m.anyway().Pass() }

// AtMost returns n, a number of elements that depends on values: how many tokens an
// expert gets, say. Memory is planned before there are values, so in a dry run it
// returns the bound, and the buffer allocated next is planned for that. A step may ask
// for less there, and for more nowhere.
func (m Microbatch[T]) AtMost(n, bound int) int { return m.open().AtMost(n, bound) }

// Part returns an entry part, borrowed for the call. It fails with ErrDropped after the
// part's last read on this rank, and with ErrUndeclared where the part is alive and the
// stage did not declare to read it in this kind of action.
func (m Microbatch[T]) Part(p Part) T {
	h, err := m.open().Part(int(p) - 1)
	m.Check(err)
	return h
}

// Retain adds a reference to h and returns it, so that a borrowed handle can be
// saved or returned. A handle that cannot be retained comes back as it is, and
// handing it over fails.
func (m Microbatch[T]) Retain(h T) T { return m.open().Retain(h) }

// Release ends a reference of the stage's own, such as a workspace's.
func (m Microbatch[T]) Release(h T) { m.checkAnyway(m.anyway().Release(h)) }

// Save hands h over to the backward, or in I to W. It may be called in a forward, in a
// recompute, and in I. In Eval, and in the first pass of a stage that recomputes, nothing
// will take it and h is released at once. If it fails h is still the stage's. I may save
// in a slot that it has taken: what was there ends then.
func (m Microbatch[T]) Save(s Slot, h T) {
	v := m.open()
	m.Check(v.Save(int(s)-1, v.Taker(), h))
}

// SaveFor is Save for the action that is named: a forward may save for W.
func (m Microbatch[T]) SaveFor(by Taker, s Slot, h T) { m.Check(m.open().Save(int(s)-1, by, h)) }

// Take lends what was saved in a slot for the rest of the action, once. The slot ends
// with the action, or with End.
func (m Microbatch[T]) Take(s Slot) T {
	h, err := m.open().Take(int(s) - 1)
	m.Check(err)
	return h
}

// Move is Take of a slot that ends with it: the stage owns h, and releases it or hands it over.
// Take is for what the call only reads.
func (m Microbatch[T]) Move(s Slot) T {
	h, err := m.open().Move(int(s) - 1)
	m.Check(err)
	return h
}

// End ends a slot before its action does, to make room: one that was taken, or one that
// this action could take and does not need.
func (m Microbatch[T]) End(s Slot) { m.Check(m.open().End(int(s) - 1)) }

// Loss records a loss as two numbers: an unnormalised sum and its weight, finite
// and not negative (L3). What trains is recorded once in a microbatch: a second record
// fails with ErrContribution. In a recompute it does nothing.
func (m Microbatch[T]) Loss(l Loss, sum, weight float64) {
	m.Check(m.open().Loss(int(l)-1, sum, weight))
}

// LossCell returns what a stage whose loss is on the rank's device adds it to, in place of Loss,
// so that nobody waits for it before step end (L3): cells of losses (loss.Cells), borrowed for
// the call, and the number of the one. It returns the zero T where two numbers are wanted.
func (m Microbatch[T]) LossCell(l Loss) (cells T, index int) {
	cells, index, err := m.open().LossCell(int(l) - 1)
	m.Check(err)
	return cells, index
}

// LossSeed returns what the gradient of a loss's sum starts with: the step's
// power-of-two scale times the loss's coefficient (L10). It is not divided by any weight:
// that happens once, at step end. A metric has no seed: ErrUndeclared.
func (m Microbatch[T]) LossSeed(l Loss) float32 {
	seed, err := m.open().LossSeed(int(l) - 1)
	m.Check(err)
	return seed
}

// Grad returns the gradient of a parameter to add to: it is set to zero before the first
// contribution of a step (L5). trains is false where the parameter is frozen. Grad counts
// the contribution: ask once per microbatch, in B or W, and add.
func (m Microbatch[T]) Grad(p Param) (grad T, trains bool) {
	grad, trains, err := m.open().Sum(int(p) - 1)
	m.Check(err)
	return grad, trains
}

// GradFirst is Grad for kernels that write: it says how, Skip, First or Add, and sets
// nothing to zero. With -tags invariants what First lends is NaN until it is overwritten,
// where the space can fill it (kernels.Host).
func (m Microbatch[T]) GradFirst(p Param) (grad T, write Write) {
	grad, write, err := m.open().Grad(int(p) - 1)
	m.Check(err)
	return grad, write
}

// Frozen reports whether a parameter is frozen, so that nothing need be saved
// for its gradient.
func (m Microbatch[T]) Frozen(p Param) bool { return m.open().Frozen(int(p) - 1) }

// WeightCopy returns a copy of a weight that QUANTIZE has made, borrowed for the call. One
// for the forward is read in a forward, and in the recompute of a stage that declares it;
// one for the backward in B and I, but not in a recompute there. It fails with ErrDropped if
// the plan has dropped the copy or not made it.
func (m Microbatch[T]) WeightCopy(k Copy) T {
	h, err := m.open().WeightCopy(int(k) - 1)
	m.Check(err)
	return h
}

// Scope returns the scope of the running call, for a decorator to change and
// restore around the calls of its child.
func (m Microbatch[T]) Scope() Scope { return m.anyway().Scope() }

// SetScope sets the scope. Levels beyond the stage's own are cut off.
func (m Microbatch[T]) SetScope(s Scope) { m.anyway().SetScope(s) }

// Hold hands h over for a decorator that passes it from one child to another, as
// the runner holds what passes between stages. Drop ends it: the decorator must
// see to that on every way out of its call.
func (m Microbatch[T]) Hold(h T) { m.Check(m.open().Hold(h)) }

// Yield gives back what Hold has handed over: the reference is the decorator's again.
func (m Microbatch[T]) Yield(h T) { m.checkAnyway(m.anyway().Yield(h)) }

// Drop ends what Hold has handed over.
func (m Microbatch[T]) Drop(h T) { m.checkAnyway(m.anyway().Drop(h)) }

// Abandon ends a reference on the way out of a call that has failed: one that Hold has
// handed over where held is set, else one of the stage's own. It never fails.
func (m Microbatch[T]) Abandon(h T, held bool) { m.anyway().Abandon(h, held) }
