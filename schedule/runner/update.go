package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-ml/weir/loss"
)

// update is the update of a training step. The copies of its Result share it.
type update struct {
	running *atomic.Bool // Runner.running, which the update holds
	taken   bool
	refused bool // unchanged has returned an error, which Update has reported
	stale   bool // another training step has begun
	// unchanged returns an error if the gradients have changed since the step. It is nil once the update
	// is applied or stale, so that the ranks' results are equal.
	unchanged func() error
	// gather completes the weights after each replica has updated its part. If the update has failed,
	// gather instead makes the other replicas stop waiting.
	gather func(failed error) error
}

// Update calls apply with the factor by which the optimizer must multiply every gradient: 1 divided
// by the objective's total weight and by the scale of the seeds (L10). The factor is a normal
// float32. A second Update returns ErrUpdated.
//
// Update works only for the runner's last training step, to which the gradients belong. After another
// training step has begun, even if it failed, Update returns ErrStaleResult. If the step has no
// update, Update does not call apply, and returns an error that wraps ErrNoUpdate: ErrSkipped,
// ErrEmpty, ErrRange, or ErrNoUpdate itself for an evaluation or a step without an objective. A trainer
// that wants to continue after a skipped step should check for ErrSkipped. Update computes the sums of
// squares of the gradients again, and returns ErrOverwritten if they have changed since the step. After its
// first Update, a runner refuses to begin a training step while the update of an earlier one is not applied
// (ErrUnused), unless Update has reported that the gradients have changed or cannot be read.
//
// At Replicas.Shard 1 and 2 each replica updates the elements of each weight that it owns ([ShardRange]),
// and Update gathers the other elements, so every process must call it. If it fails in one process,
// it fails in all of them. After a failed evaluation Update returns an error without calling apply,
// and the step can be repeated.
//
// Update returns ErrBusy while a step or an evaluation runs. Step, Evaluate, SetScaleExponent and Close
// return it if apply calls them.
func (r *Result) Update(apply func(factor float64) error) error {
	switch {
	case apply == nil:
		return errors.New("runner: the function of Update is nil: pass the optimizer's step, or a function that does nothing")
	case r.refused != nil:
		return r.refused
	case r.Outcome == loss.Skipped && r.FirstNonFinite >= 0:
		return fmt.Errorf("%w (first in the loss of microbatch %d)", ErrSkipped, r.FirstNonFinite)
	case r.Outcome == loss.Skipped:
		return ErrSkipped
	case r.Outcome == loss.Empty:
		return ErrEmpty
	case r.factor == 0:
		return ErrNoUpdate
	case !r.update.running.CompareAndSwap(false, true):
		return ErrBusy
	}
	defer r.update.running.Store(false)
	switch {
	case r.update.stale:
		return fmt.Errorf("%w, and the gradients no longer belong to step %d: update before the next step", ErrStaleResult, r.Step)
	case r.update.taken:
		return ErrUpdated
	}
	gather := r.update.gather
	if err := r.update.unchanged(); err != nil {
		r.update.refused = true
		return gather(err)
	}
	r.update.taken, r.update.unchanged, r.update.gather = true, nil, nil
	return gather(apply(r.factor))
}

// unchanged returns an error if gradients of this process have changed since the last step.
func (r *Runner[T]) unchanged() error {
	for _, w := range r.workers {
		if err := w.params.unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// gathersWeights reports whether Update exchanges weights between replicas.
func (r *Runner[T]) gathersWeights() bool {
	return r.cfg.Replicas.Shard == 1 || r.cfg.Replicas.Shard == 2
}

// gatherWeights completes the weights of the ranks of this process after an update. Once it returns, no
// other rank reads them. If the update has failed, gatherWeights instead makes the other replicas stop
// waiting.
func (r *Runner[T]) gatherWeights(failed error) error {
	if !r.gathersWeights() {
		return failed
	}
	onEachRank := func(phase func(w *worker[T]) error) {
		for _, w := range r.workers {
			if w.params.shared == nil || failed != nil {
				continue
			}
			if failed = phase(w); failed != nil {
				failed = fmt.Errorf("runner: %s, weights after an update: %w", w.name(), failed)
			}
		}
	}
	ctx := context.Background()
	onEachRank(func(w *worker[T]) error { return w.params.shared.ExposeWeights(w.step) })
	onEachRank(func(w *worker[T]) error { return w.params.shared.GetWeights(ctx) })
	onEachRank(func(w *worker[T]) error { return w.params.shared.WithdrawWeights(ctx) })
	if failed != nil {
		for _, w := range r.workers {
			w.leave(failed)
		}
	}
	return failed
}
