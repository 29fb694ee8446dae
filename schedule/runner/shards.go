package runner

import (
	"context"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
)

// Sharded weights and gradients of replicas.

// unshard gathers the weights of a stage, which the frames hold from then on.
func (r *worker[T]) unshard(ctx context.Context, s int, e *effects.Effects) error {
	return r.Frames.PutAt(e.To, int(e.Stage), 0, nil, 0) // the weights are whole
}

// reduce reduces the gradients of a stage over the replicas. Gradients that were not written are
// zero (L5).
func (r *worker[T]) reduce(ctx context.Context, s int) error {
	return r.zeroUnwritten(s)
}

// zeroUnwritten sets the gradients of a stage's parameters to zero if this step has not written
// them (L5).
func (r *worker[T]) zeroUnwritten(s int) error {
	for p, param := range r.Stages[s].Params {
		if param.Contributes == frames.Frozen || r.Frames.Written(s, p) {
			continue
		}
		if err := r.gradients.Zero(param.Grad); err != nil {
			return err
		}
		r.Frames.SetWritten(s, p)
	}
	return nil
}
