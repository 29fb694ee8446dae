package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/effects"
)

// WeightCopy declares a copy of a weight, on which a stage computes. QUANTIZE makes it,
// once in a step, and the step holds it until the plan drops it.
type WeightCopy struct {
	Name string // of the weight
	// At says which calls read the copy: AtForward or AtBackward. Copies for the forward
	// end apart from copies for the backward.
	At At
	// InputOnly says that a backward reads the copy for the gradient of the stage's input
	// alone. It is not made in a step that does not need this gradient.
	InputOnly bool
}

// String returns the name of the weight and the direction.
func (w WeightCopy) String() string { return w.Name + " for the " + w.direction() }

func (w WeightCopy) direction() string {
	if w.At == AtForward {
		return "forward"
	}
	return "backward"
}

// place returns where the step holds the copy.
func (w WeightCopy) place() effects.Place {
	if w.At == AtForward {
		return effects.ForwardWeights
	}
	return effects.BackwardWeights
}

// Quantization is the view that a stage has of a QUANTIZE, for batchctx.Quantization.
type Quantization[T any] struct {
	ctx      *Frames[T]
	stage    int
	backward bool // the stage has a backward in this step
}

// Frames returns the frames of the view.
func (q *Quantization[T]) Frames() *Frames[T] { return q.ctx }

// Step returns the number of the step.
func (q *Quantization[T]) Step() int64 { return q.ctx.step }

// Seed returns the seed that random draws are keyed by, together with Step and the
// operation's name (L9). All replicas make the same copies.
func (q *Quantization[T]) Seed() uint64 { return q.ctx.seed }

// Pass returns why the stage will run: Train or Eval.
func (q *Quantization[T]) Pass() Pass { return q.ctx.stages[q.stage].scope.Pass }

// Release ends a reference of the stage's own, such as a workspace's.
func (q *Quantization[T]) Release(h T) error {
	_, err := q.ctx.space.Release(h)
	return err
}

// Copies returns the scope of the call: all copies of the stage.
func (q *Quantization[T]) Copies() Range { return q.ctx.stages[q.stage].scope.Copies }

// Wants reports whether this step needs the copy at index i of the scope.
func (q *Quantization[T]) Wants(scope Range, i int) bool {
	n, declared := scope.within(q.Copies()).at(i)
	return declared && q.needs(n)
}

func (q *Quantization[T]) needs(n int) bool {
	st := &q.ctx.stages[q.stage]
	w := &st.WeightCopies[n]
	return w.At == AtForward || q.backward && (st.InputGradient || !w.InputOnly)
}

// Put takes over the copy at index i of the scope. If it fails h is released.
func (q *Quantization[T]) Put(scope Range, i int, h T) error {
	err := q.put(scope.within(q.Copies()), i, h)
	if err != nil {
		_, _ = q.ctx.space.Release(h) // The first error is returned.
	}
	return err
}

func (q *Quantization[T]) put(scope Range, i int, h T) error {
	n, declared := scope.at(i)
	if !declared {
		return fmt.Errorf("%w: copy of a weight %d where the stage declares %d: keys are those of its own Decl", ErrUndeclared, i+1, scope.Count)
	}
	st := &q.ctx.stages[q.stage]
	w := &st.WeightCopies[n]
	switch {
	case !q.needs(n):
		return fmt.Errorf("%w: copy of %q for the %s, which this step does not need: ask Wants", ErrUndeclared, w.Name, w.direction())
	case st.copies[n].held():
		return fmt.Errorf("%w: copy of %q for the %s was put already", ErrOccupied, w.Name, w.direction())
	}
	if err := q.ctx.hold(&st.copies[n], h, ofPlaces[w.place()]); err != nil {
		return fmt.Errorf("batchctx: copy of %q for the %s: %w", w.Name, w.direction(), err)
	}
	return nil
}

// Quantize begins a QUANTIZE of a stage, which Quantized ends, and returns its view.
func (c *Frames[T]) Quantize(stage int, backward bool) *Quantization[T] {
	c.generation++
	c.quantization = Quantization[T]{c, stage, backward}
	return &c.quantization
}

// Quantized ends the view of a QUANTIZE, which has returned err. All copies that the step
// needs must be there.
func (c *Frames[T]) Quantized(err error) error {
	if err := c.End(err); err != nil {
		return err
	}
	q := &c.quantization
	st := &c.stages[q.stage]
	for n, w := range st.WeightCopies {
		if q.needs(n) && !st.copies[n].held() {
			return fmt.Errorf("%w: stage %d (%s) made no copy of %q for the %s: Put it", ErrMissing, q.stage, st.Name, w.Name, w.direction())
		}
	}
	c.counts[effects.ForwardWeights]++
	if q.backward {
		c.counts[effects.BackwardWeights]++
	}
	return nil
}

// Copies iterates over the copies of a stage's weights that are held, those for the
// forward first.
func (c *Frames[T]) Copies(stage int, yield func(w WeightCopy, h T)) {
	st := &c.stages[stage]
	for _, at := range []At{AtForward, AtBackward} {
		for n, w := range st.WeightCopies {
			if w.At == at && st.copies[n].held() {
				yield(w, st.copies[n].handle)
			}
		}
	}
}

// WeightCopy returns a copy of a weight that QUANTIZE has made, borrowed for the call. One
// for the forward is read in a forward, and in the recompute of a stage that declares it;
// one for the backward in B and I. The error is ErrDropped if the plan has dropped the copy
// or not made it.
func (m *View[T]) WeightCopy(i int) (T, error) {
	var zero T
	if m.call == None {
		return zero, ErrEnded
	}
	n, declared := m.scope.Copies.at(i)
	if !declared {
		return zero, m.undeclared("copy of a weight", i, m.scope.Copies)
	}
	w, recomputes := &m.layout.WeightCopies[n], m.scope.Pass == Recompute
	readable := m.call == InForward || recomputes && m.layout.Recomputes
	if w.At == AtBackward {
		readable = !recomputes && (m.call == InBackward || m.call == InBackwardInput)
	}
	cell := &m.ctx.stages[m.stage].copies[n]
	switch {
	case !readable:
		return zero, m.fault(ErrMisplaced, "copy of %q for the %s in %v", w.Name, w.direction(), m.call)
	case !cell.held():
		return zero, m.fault(ErrDropped, "copy of %q for the %s", w.Name, w.direction())
	}
	return cell.handle, nil
}
