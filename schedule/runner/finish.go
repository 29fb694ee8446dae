package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule"
)

// finish ends a step: it completes the gradients, compares the books, exchanges the results of all
// ranks once, and sets the Result. After the exchange all ranks have the same numbers and make the
// same decisions.
func (r *worker[T]) finish(ctx context.Context) error {
	r.running.action = 0
	if r.links.watcher != nil {
		r.links.watcher.Runs(r.step, 0)
	}
	r.calls.Frames.Act(-1, -1)
	r.setEndPosition()
	if err := r.pull(ctx, r.running.plan.Microbatches-1); err != nil { // the rank may not have needed all entries
		return err
	}
	if err := r.checkSourceAgain(); err != nil {
		return err
	}
	if err := r.losses.cells.join(r.losses.ledger); err != nil {
		return err
	}
	if invariants.Enabled {
		for s := range r.calls.Stages {
			if err := r.calls.Frames.CheckWeights(s); err != nil {
				return fmt.Errorf("%w, after its last call: a hook, or a view that was kept, wrote to it", err)
			}
		}
	}
	if r.running.audit != nil {
		if err := r.auditWeights(true); err != nil {
			return err
		}
	}
	training := r.running.plan.Mode == schedule.Training
	if training {
		if err := r.finishGradients(ctx); err != nil {
			return err
		}
	}
	if r.params.shared != nil {
		r.params.shared.Stop()
	}
	if err := r.calls.Frames.Audit(frames.Counts{}); err != nil && !r.cfg.Memory.TolerateLeaks {
		return err
	}
	if err := r.auditPlan(); err != nil {
		return err
	}
	if err := r.losses.ledger.Finish(&r.losses.record); err != nil {
		return err
	}
	ranks, err := r.exchange(ctx, &r.losses.record)
	if err != nil {
		return err
	}
	totals, err := r.losses.ledger.Totals(&r.losses.record)
	if err != nil {
		return err
	}
	r.running.result.gather(ranks)
	r.running.result.Losses = totals.Values
	r.running.result.Outcome = totals.Outcome
	r.running.result.FirstNonFinite = totals.FirstNonFinite
	if training && r.losses.objective >= 0 && totals.Outcome == loss.Stepped {
		r.setFactor(totals.Divisor)
	}
	return nil
}

// finishGradients checks what the stages have contributed, and completes the gradients: it sets unwritten
// gradients to zero, waits for reductions over replicas, and adds the uses of tied parameters in stage order
// (L5, L9). Then it measures the gradients.
func (r *worker[T]) finishGradients(ctx context.Context) (err error) {
	if err := r.checkContributions(); err != nil {
		return err
	}
	for s := range r.calls.Stages {
		if !r.calls.Stages[s].Own {
			continue
		}
		if err := r.params.zeroUnwritten(s); err != nil {
			return err
		}
	}
	if err := r.addTied(ctx); err != nil {
		return err
	}
	r.params.sums, err = r.params.measure(r.params.sums[:0])
	return err
}

// checkContributions checks that every use of a parameter contributed as often as declared, and that
// the stages have recorded their losses and asked for their seeds and weights.
func (r *worker[T]) checkContributions() error {
	var faults []error
	for s := range r.calls.Stages {
		if r.calls.Stages[s].Own {
			from, to := r.running.plan.Span(s)
			if err := r.calls.Frames.Contributions(s, to-from-r.extra()); err != nil {
				faults = append(faults, err)
			}
			if r.params.level == 3 && len(r.calls.Stages[s].Params) > 0 && !r.calls.Frames.Asked(s) {
				faults = append(faults, fmt.Errorf("%w: stage %d (%s) never asked for one, and Replicas.Shard 3 leaves it a part: call Microbatch.Weight", ErrUnasked, s, r.calls.Stages[s].Spec.Name))
			}
			if name := r.calls.Frames.Unseeded(s); name != "" && r.calls.Stages[s].GradientWanted && len(r.params.owners) > 0 {
				faults = append(faults, fmt.Errorf("%w: stage %d (%s) records %q, which trains: ask for its seed (Microbatch.LossSeed) and multiply its gradient by it, or declare it with Decl.Metric", ErrUnseeded, s, r.calls.Stages[s].Spec.Name, name))
			}
		}
	}
	if err := r.checkObjective(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// checkObjective checks that the stages that declare the objective recorded it in every microbatch.
// Otherwise steps would be Empty, or train on only part of the batch.
func (r *worker[T]) checkObjective() error {
	if r.losses.objective < 0 {
		return nil
	}
	name, want := r.cfg.Losses[r.losses.objective].Name, int64(0)
	for s := range r.calls.Stages {
		for _, declared := range r.calls.Stages[s].Spec.Losses {
			if r.calls.Stages[s].Own && declared == name {
				from, to := r.running.plan.Span(s)
				want += int64(to - from - r.extra())
			}
		}
	}
	have := r.losses.ledger.Count(r.losses.objective)
	if have >= want {
		return nil
	}
	var heads []string
	for s := range r.calls.Stages {
		if r.calls.Stages[s].Own && slices.Contains(r.calls.Stages[s].Spec.Losses, name) {
			heads = append(heads, fmt.Sprintf("stage %d (%s)", s, r.calls.Stages[s].Spec.Name))
		}
	}
	return fmt.Errorf("%w: %s recorded %q in %d of %d microbatches: call Microbatch.Loss in every forward, with weight 0 if there is no target",
		ErrUnrecorded, strings.Join(heads, " and "), name, have, want)
}

// setFactor computes the factor and the gradient norm, which counts each parameter once, in stage
// order. It sets the outcome to Skipped if a gradient is not finite, and OutOfRange if float32, the
// type of gradients, cannot hold the factor or the norm.
func (r *worker[T]) setFactor(divisor float64) {
	var squares float64
	for i, s := range r.params.squares {
		if math.IsNaN(s) || math.IsInf(s, 0) {
			r.running.result.Outcome = loss.Skipped
			r.running.result.refused = fmt.Errorf("%w (first in %s)", ErrSkipped, r.params.gradientName(r.params.owners[i]))
			return
		}
		squares += s
	}
	factor := math.Ldexp(1/divisor, -r.cfg.ScaleExponent)
	norm := math.Sqrt(squares) * factor
	if factor < 0x1p-126 || max(factor, norm) > math.MaxFloat32 { // the factor is positive, and norm is not NaN
		r.running.result.Outcome = loss.OutOfRange
		r.running.result.refused = fmt.Errorf("%w: %.3g, which makes their norm %.3g: the total weight of %q is %.3g and the scale of seeds 2^%d: record weights near 1 for each target, or choose another scale",
			ErrRange, factor, norm, r.cfg.Losses[r.losses.objective].Name, divisor, r.cfg.ScaleExponent)
		return
	}
	r.running.result.factor, r.running.result.GradNorm = factor, norm
}
