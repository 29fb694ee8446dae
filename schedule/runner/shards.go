package runner

import (
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
)

// Sharded weights and gradients of replicas.

// whole makes buffers of whole parameters of a stage, which the frames hold: the gradients at
// ZERO_GRAD, or the weights at UNSHARD. Without sharding there are none to make.
func (r *worker[T]) whole(place effects.Place, s int) error {
	return r.Frames.PutParams(place, s, func(p int) (h T, made bool, err error) {
		param := &r.Stages[s].Params[p]
		if r.level < 2 || r.level < 3 && place == effects.Gathered || place == effects.Accumulator && param.Contributes == frames.Frozen {
			return h, false, nil
		}
		like := param.Grad
		if place == effects.Gathered {
			like = param.Weight
		}
		h, err = r.sharded.New(memory.Unsharded, like, r.elements(param))
		return h, err == nil, err
	})
}

// zeroUnwritten sets the gradients of a stage's parameters to zero if this step has not written
// them (L5).
func (r *worker[T]) zeroUnwritten(s int) error {
	for p, param := range r.Stages[s].Params {
		if param.Contributes == frames.Frozen || r.Frames.Written(s, p) {
			continue
		}
		if err := r.gradients.Zero(r.Frames.Grad(s, p)); err != nil {
			return err
		}
		r.Frames.SetWritten(s, p)
	}
	return nil
}
