package runner

import (
	"context"
	"errors"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/effects"
)

// quantize runs QUANTIZE: the stage makes the copies of its weights on which it computes
// in this step (L14). The context holds them until the plan drops them, those for the
// forward and those for the backward apart.
func (r *worker[T]) quantize(ctx context.Context, s int, e *effects.Effects) error {
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
	if err := r.put(e, 0, r.stages[s].forward, 0); err != nil || backward == nil {
		return err
	}
	r.expected[effects.BackwardWeights]++
	return r.context.PutAt(effects.BackwardWeights, s, 0, backward, 0)
}

// makeWeights calls a stage for its copies, those for a backward where there is one.
func (r *worker[T]) makeWeights(ctx context.Context, s int, backward []T) error {
	st := &r.stages[s]
	call := batchctx.OfWeights(r.context.Quantize(s))
	return r.context.End(st.quantizer.QuantizeWeights(ctx, call, st.forward, backward))
}
