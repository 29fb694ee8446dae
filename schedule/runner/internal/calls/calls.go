package calls

import (
	"context"
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// Caller calls the stages and the source of one rank.
type Caller[T any] struct {
	Rank      int
	Space     memory.Space[T]
	Placement schedule.Placement
	Parts     []string // names of the parts of an entry
	Stages    []Stage[T]
	Frames    *frames.Frames[T]
	Source    Source[T] // source of the running step
}

// Source is runner.Source.
type Source[T any] interface {
	Next(ctx context.Context, entry batchctx.Entry[T]) error
}

// Fill asks the source for an entry of the replica's batch.
func (c *Caller[T]) Fill(ctx context.Context, batchIndex int) error {
	if err := c.Frames.BeginEntry(batchIndex); err != nil {
		return err
	}
	return c.Frames.EndEntry(c.Source.Next(ctx, batchctx.Entry[T](c.Frames.EntryView())))
}

// Quantize calls a stage to make the copies of its weights, which the frames take over.
func (c *Caller[T]) Quantize(ctx context.Context, s int, backward bool) error {
	if c.Stages[s].Quantizer == nil { // already rejected when the plan is checked
		return errors.New("runner: the stage makes no copies of its weights")
	}
	call := batchctx.Quantization[T](c.Frames.Quantize(s, backward).QuantizationView())
	return c.Frames.EndQuantize(c.Stages[s].Quantizer.QuantizeWeights(ctx, call))
}

// Forward calls a stage for F. The frames then hold the outputs in the place e.To.
func (c *Caller[T]) Forward(ctx context.Context, s, m int, e *effects.Effects) error {
	st := &c.Stages[s]
	if err := c.Frames.Open(s, m, st.In); err != nil {
		return err
	}
	view := batchctx.Microbatch[T](c.Frames.Call(s, m, frames.InForward).View())
	if err := c.Frames.End(st.Forward(ctx, view, st.In, st.Out)); err != nil {
		return err
	}
	clear(st.In)
	if err := c.Frames.PutAt(e.To, int(e.Stage), m, st.Out, 0); err != nil {
		return nameMissing(err, "output", "out", "Forward", st.Spec.Outputs)
	}
	return nil
}

// Backward calls a stage for B or I. The frames then hold the gradients of the inputs in the place e.To.
func (c *Caller[T]) Backward(ctx context.Context, s, m int, call frames.Call, e *effects.Effects) error {
	st := &c.Stages[s]
	var gradOut, gradIn []T
	if st.After >= 0 {
		gradOut = st.GradOut
		if err := c.Frames.Gradients(s, m, gradOut, st.NoGradOut); err != nil {
			return err
		}
	}
	if st.WantsGradient {
		gradIn = st.gradIn
	}
	if st.Split == nil { // the I of a frozen stage is its whole backward, which computes no weight gradients
		call = frames.InBackward
	}
	view := batchctx.Microbatch[T](c.Frames.Call(s, m, call).View())
	var err error
	if call == frames.InBackwardInput {
		err = st.Split.BackwardInput(ctx, view, gradOut, gradIn)
	} else {
		err = st.Backward(ctx, view, gradOut, gradIn)
	}
	if err = c.Frames.End(err); err != nil {
		return err
	}
	clear(st.GradOut)
	if gradIn == nil {
		return nil
	}
	if err := c.Frames.CheckSizes(s, m, gradIn, st.NoGradIn); err != nil {
		return err
	}
	if err := c.Frames.PutAt(e.To, int(e.Stage), m, gradIn, st.NoGradIn); err != nil {
		return nameMissing(err, "gradient of input", "gradIn", "the backward", st.Spec.Inputs)
	}
	clear(gradIn) // the stage may have set a port without a gradient
	return nil
}

// BackwardWeight calls a stage for W.
func (c *Caller[T]) BackwardWeight(ctx context.Context, s, m int) error {
	if c.Stages[s].Split == nil { // already rejected when the plan is checked
		return errors.New("runner: the stage does not split its backward")
	}
	view := batchctx.Microbatch[T](c.Frames.Call(s, m, frames.InBackwardWeight).View())
	return c.Frames.End(c.Stages[s].Split.BackwardWeight(ctx, view))
}

// nameMissing adds the port's name to a frames.MissingError.
func nameMissing(err error, what, argument, call string, ports []stages.Port) error {
	var missing *frames.MissingError
	if !errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("the stage set no %s %d (%s): set %s[%d] in %s: %w", what, missing.Port, ports[missing.Port].Name, argument, missing.Port, call, missing)
}

// Abort releases everything in the stages' scratch space and in the frames (L8).
func (c *Caller[T]) Abort() {
	for s := range c.Stages {
		st := &c.Stages[s]
		clear(st.In)
		clear(st.GradOut)
		c.GiveBack(st.Out)
		c.GiveBack(st.gradIn)
	}
	c.Frames.Abort()
}

// GiveBack releases handles that a failed call has left behind, and clears the slice. Some of them may be
// the zero T.
func (c *Caller[T]) GiveBack(handles []T) {
	var none T
	for i, h := range handles {
		_, _ = c.Space.Release(h) // it refuses the zero T
		handles[i] = none
	}
}
