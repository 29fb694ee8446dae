package runner

import (
	"context"
	"math"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// finish is the end of a step, in its order: gradients, losses, verdict, audit.
func (r *Runner[T]) finish(ctx context.Context) error {
	training := r.plan.Mode == schedule.Training
	if training {
		if err := r.context.Contributions(r.plan.Microbatches); err != nil {
			return err
		}
		if err := r.gatherGradients(); err != nil {
			return err
		}
	}
	totals, err := r.ledger.Reduce(r.merge(ctx))
	if err != nil {
		return err
	}
	r.result.Losses = totals.Values
	r.result.Outcome = totals.Outcome
	r.result.FirstNonFinite = totals.FirstNonFinite
	if training && r.objective >= 0 && totals.Outcome == loss.Stepped {
		if err := r.verdict(totals.Divisor); err != nil {
			return err
		}
	}
	if err := r.context.Audit(batchctx.Counts{}); err != nil && !r.cfg.TolerateLeaks {
		return err
	}
	r.account()
	return nil
}

// merge returns what merges the losses of all ranks, nil on one.
func (r *Runner[T]) merge(ctx context.Context) func(*loss.Record) error {
	if r.cfg.Merge == nil {
		return nil
	}
	return func(record *loss.Record) error { return r.cfg.Merge(ctx, record) }
}

// gatherGradients makes each parameter's gradient whole: zero where nothing was
// written, the uses of a tied one added in stage order (L5, L9).
func (r *Runner[T]) gatherGradients() error {
	for s := range r.stages {
		for p, param := range r.stages[s].params {
			if param.Contributes != batchctx.Frozen && !r.context.Written(s, p) {
				if err := r.cfg.Gradients.Zero(param.Grad); err != nil {
					return err
				}
			}
		}
	}
	for _, tie := range r.tied {
		if err := r.cfg.Gradients.Add(r.gradient(tie.owner), r.gradient(tie.use)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner[T]) gradient(u use) T { return r.stages[u.stage].params[u.param].Grad }

// verdict computes the gradient norm, each parameter once and in stage order,
// and the factor. Where one of them is not finite the step is Skipped: a gradient
// was not, or the total weight is so small or so large that float64 cannot divide
// by it.
func (r *Runner[T]) verdict(divisor float64) error {
	var squares float64
	for _, owner := range r.owners {
		s, err := r.cfg.Gradients.SumSquares(r.gradient(owner))
		if err != nil {
			return err
		}
		squares += s
	}
	factor := math.Ldexp(1/divisor, -r.cfg.ScaleExponent)
	if norm := math.Sqrt(squares) * factor; !math.IsNaN(norm) && !math.IsInf(norm, 0) && !math.IsInf(factor, 0) && factor != 0 {
		r.result.factor, r.result.GradNorm = factor, norm
		return nil
	}
	r.result.Outcome = loss.Skipped
	return nil
}

// account writes down what the books say at the end.
func (r *Runner[T]) account() {
	r.result.Excess = r.context.Excess()
	book, ok := r.cfg.Space.(memory.Book)
	if !ok {
		r.result.Live = r.context.Live()
		return
	}
	var stats memory.Stats
	book.Stats(&stats)
	r.result.Live, r.result.Reserved = stats.Live, stats.Reserved
	r.result.Peak = max(r.result.Peak, stats.Peak)
}
