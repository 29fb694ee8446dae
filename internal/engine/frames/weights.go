package frames

import (
	"fmt"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
)

// WeightCopy declares a copy of a weight with which a stage computes. It has the fields of
// batchctx.WeightCopy.
type WeightCopy struct {
	Name      string
	At        At
	InputOnly bool
}

// String returns the name of the weight and the direction.
func (w WeightCopy) String() string { return w.Name + " for the " + w.Direction() }

// Direction returns the pass that reads the copy.
func (w WeightCopy) Direction() string {
	if w.At == AtForward {
		return "forward"
	}
	return "backward"
}

// place returns the place that holds the copy.
func (w WeightCopy) place() effects.BufferKind {
	if w.At == AtForward {
		return effects.ForwardWeights
	}
	return effects.BackwardWeights
}

// weight returns the weight that a use of a parameter computes with.
func (st *stage[T]) weight(param int) T {
	if cell := &st.gathered[param]; cell.Held() {
		return cell.Handle
	}
	return st.Params[param].Weight
}

// Quantize begins a stage's QUANTIZE; EndQuantize ends it. backward reports whether the stage has a
// backward in this step.
func (c *Frames[T]) Quantize(stage int, backward bool) *StageCall[T] {
	c.stages[stage].backward = backward
	return c.Call(stage, 0, schedule.Quantize)
}

// needsCopy reports whether this step needs a copy of a weight.
func (st *stage[T]) needsCopy(n int) bool {
	w := &st.WeightCopies[n]
	return w.At == AtForward || st.backward && (st.InputGradient || !w.InputOnly)
}

// NeedsCopy reports whether this step needs a copy of one of the stage's weights.
func (c *StageCall[T]) NeedsCopy(n int) bool { return c.stage.needsCopy(n) }

// PutCopy takes over a copy of one of the stage's weights.
func (c *StageCall[T]) PutCopy(n int, h T) error {
	w, cell := &c.stage.WeightCopies[n], &c.stage.copies[n]
	switch {
	case !c.NeedsCopy(n):
		return fmt.Errorf("%w: copy of %q for the %s, which this step does not need: call Wants first", ErrUndeclared, w.Name, w.Direction())
	case cell.Held():
		return fmt.Errorf("%w: copy of %q for the %s was put already", ErrOccupied, w.Name, w.Direction())
	}
	if err := c.Frames.Hold(cell, h, placeClasses[w.place()]); err != nil {
		return fmt.Errorf("batchctx: copy of %q for the %s: %w", w.Name, w.Direction(), err)
	}
	return nil
}

// EndQuantize ends the view of a QUANTIZE; err is the call's error. It returns ErrMissing if a copy that
// the step needs has not been put.
func (c *Frames[T]) EndQuantize(err error) error {
	if err := c.End(err); err != nil {
		return err
	}
	stage := c.account.running.stage
	st := &c.stages[stage]
	for n, w := range st.WeightCopies {
		if st.needsCopy(n) && !st.copies[n].Held() {
			return fmt.Errorf("%w: stage %d (%s) made no copy of %q for the %s: Put it", ErrMissing, stage, st.Name, w.Name, w.Direction())
		}
	}
	c.counts[effects.ForwardWeights]++
	if st.backward {
		c.counts[effects.BackwardWeights]++
	}
	return nil
}

// Copies calls yield for each copy of a stage's weights that the frames hold, starting with those for the
// forward.
func (c *Frames[T]) Copies(stage int, yield func(w WeightCopy, h T)) {
	st := &c.stages[stage]
	for _, at := range []At{AtForward, AtBackward} {
		for n, w := range st.WeightCopies {
			if w.At == at && st.copies[n].Held() {
				yield(w, st.copies[n].Handle)
			}
		}
	}
}
