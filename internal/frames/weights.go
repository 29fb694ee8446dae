package frames

// Weights says which copies of a stage's weights are meant: those that its forward
// reads, or those that its backward reads.
type Weights uint8

// The two sorts of copies. Both are made by one QUANTIZE, and end apart.
const (
	ForForward Weights = iota
	ForBackward
	numWeights = iota
)

// String returns what reads them.
func (w Weights) String() string { return [...]string{"forward", "backward"}[w] }

// copies are the copies of a stage's weights that a step has made, on which the stage
// computes until the plan drops them.
type copies[T any] [numWeights][]cell[T]

// Quantization is what a stage sees of a QUANTIZE, for batchctx.Quantization.
type Quantization[T any] struct {
	ctx  *Frames[T]
	pass Pass
	grad bool // somebody wants the gradient of the stage's input
}

// Frames returns what the view is of.
func (q *Quantization[T]) Frames() *Frames[T] { return q.ctx }

// Step returns the number of the step.
func (q *Quantization[T]) Step() int64 { return q.ctx.step }

// Seed returns the seed that random draws are keyed by, together with Step and the
// operation's name (L9). No replica has one of its own: all make the same copies.
func (q *Quantization[T]) Seed() uint64 { return q.ctx.seed }

// Pass returns why the stage will run: Train or Eval.
func (q *Quantization[T]) Pass() Pass { return q.pass }

// InputGradient reports whether somebody wants the gradient of the stage's input. Where
// nobody does, the copies that are read for it alone are not made; a stage declares which.
func (q *Quantization[T]) InputGradient() bool { return q.grad }

// SetInputGradient sets what InputGradient reports, for the stages within a decorator. The
// decorator sets it back.
func (q *Quantization[T]) SetInputGradient(wanted bool) { q.grad = wanted }

// Release ends a reference of the stage's own, such as a workspace's.
func (q *Quantization[T]) Release(h T) error {
	_, err := q.ctx.space.Release(h)
	return err
}

// Quantize returns the view of a QUANTIZE of a stage. The methods of the context here are
// the runner's.
func (c *Frames[T]) Quantize(stage int) *Quantization[T] {
	st := &c.stages[stage]
	c.generation++
	c.quantization.pass, c.quantization.grad = st.scope.Pass, st.InputGradient
	return &c.quantization
}

// Unmade returns how many of the copies for a stage's backward, the first ones, are not made.
func (c *Frames[T]) Unmade(stage int) int {
	if st := &c.stages[stage]; !st.InputGradient {
		return st.InputWeights
	}
	return 0
}

// ForwardWeight returns a copy of weights that QUANTIZE has made for the forward, by the
// stage's own numbering. The handle is borrowed for the call. It may be called in a
// forward, and in the recompute of a stage that declares it. The error is ErrDropped
// where the plan has dropped the copies or not made them.
func (m *View[T]) ForwardWeight(i int) (T, error) {
	again := m.scope.Pass == Recompute && m.layout != nil && m.layout.Recomputes
	return m.weight(ForForward, m.scope.ForwardWeights, i, m.call == InForward || again)
}

// BackwardWeight returns a copy of weights that QUANTIZE has made for the backward: in B
// and I, but for a recompute there. Otherwise it is as ForwardWeight.
func (m *View[T]) BackwardWeight(i int) (T, error) {
	return m.weight(ForBackward, m.scope.BackwardWeights, i,
		(m.call == InBackward || m.call == InBackwardInput) && m.scope.Pass != Recompute)
}

// weights returns the names of what there are copies of.
func (l *Layout[T]) weights(w Weights) []string {
	return [...][]string{l.ForwardWeights, l.BackwardWeights}[w]
}

func (m *View[T]) weight(w Weights, own Range, i int, allowed bool) (T, error) {
	var zero T
	if m.call == None {
		return zero, ErrEnded
	}
	n, declared := own.at(i)
	switch {
	case !declared:
		return zero, m.undeclared("copy of weights for the "+w.String(), i, own)
	case !allowed:
		return zero, m.fault(ErrMisplaced, "copy of %q for the %v in %v", m.layout.weights(w)[n], w, m.call)
	}
	cell := &m.ctx.stages[m.stage].copies[w][n]
	if !cell.held() {
		return zero, m.fault(ErrDropped, "copy of %q for the %v", m.layout.weights(w)[n], w)
	}
	return cell.handle, nil
}
