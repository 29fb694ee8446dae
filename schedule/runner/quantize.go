package runner

import (
	"context"
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/schedule"
)

// quantize runs QUANTIZE: the stage makes the copies of its weights on which it computes
// in this step (L14). The context holds them until the plan drops them, those for the
// forward and those for the backward apart.
func (r *worker[T]) quantize(ctx context.Context, s int) error {
	if r.stages[s].quantizer == nil { // which the check has refused
		return errors.New("runner: the stage computes on its weights themselves")
	}
	r.context.Act(s, 0)
	var backward []T
	if r.plan.HasBackward(s) {
		backward = r.stages[s].backward
	}
	if err := r.makeWeights(ctx, s, backward); err != nil {
		return err
	}
	return r.putWeights(s, backward)
}

// makeWeights calls a stage for its copies, those for a backward where there is one.
func (r *worker[T]) makeWeights(ctx context.Context, s int, backward []T) error {
	st := &r.stages[s]
	call := batchctx.OfWeights(r.context.Quantize(s))
	return r.context.End(st.quantizer.QuantizeWeights(ctx, call, st.forward, backward))
}

// putWeights hands the copies that a stage has made to the context: those for a backward
// where there is one.
func (r *worker[T]) putWeights(s int, backward []T) error {
	r.expected.Copied++
	if err := r.context.PutWeights(s, frames.ForForward, r.stages[s].forward); err != nil || backward == nil {
		return err
	}
	r.expected.Copied++
	return r.context.PutWeights(s, frames.ForBackward, backward)
}

// dropWeights ends the copies of a stage's weights that an action was the last to read.
func (r *worker[T]) dropWeights(s int, drop schedule.Drop) error {
	if drop&schedule.DropForwardWeights != 0 {
		r.expected.Copied--
		if err := r.context.DropWeights(s, frames.ForForward); err != nil {
			return err
		}
	}
	if drop&schedule.DropBackwardWeights != 0 {
		r.expected.Copied--
		return r.context.DropWeights(s, frames.ForBackward)
	}
	return nil
}
