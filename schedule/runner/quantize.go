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
	r.frames.Act(s, 0)
	r.expected[e.To]++
	backward := r.plan.HasBackward(s)
	if backward {
		r.expected[effects.BackwardWeights]++
	}
	return r.makeWeights(ctx, s, backward)
}

// makeWeights calls a stage for its copies, which the context takes over.
func (r *worker[T]) makeWeights(ctx context.Context, s int, backward bool) error {
	call := batchctx.NewQuantization(r.frames.Quantize(s, backward))
	return r.frames.Quantized(r.stages[s].quantizer.QuantizeWeights(ctx, call))
}
