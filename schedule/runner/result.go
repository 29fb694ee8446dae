package runner

import "github.com/weir-ml/weir/loss"

// Result is what a step came to. It is the caller's.
type Result struct {
	Step         int64
	Microbatches int
	Outcome      loss.Outcome
	Losses       []loss.Value // by the order of Config.Losses
	// GradNorm is the norm of the gradient that the factor makes, each parameter
	// once; 0 where there is none.
	GradNorm float64
	// FirstNonFinite is the first microbatch with a loss that is not finite, -1 for none.
	FirstNonFinite int
	Peak           int64 // bytes live at most
	Live           int64 // bytes live at the end
	Reserved       int64
	Excess         int64 // bytes that the allocator's book has more than the context's, at the end
	Growth         int64 // largest growth of a microbatch, in bytes
	Books          int   // books audited: 2, or 1 where the space has none of its own
	Actions        int

	factor float64
	taken  bool
}

// Factor returns what the optimizer multiplies every gradient by: 1 over the
// objective's total weight and over the scale of the seeds (L10). It can be taken
// once. ErrNoUpdate says that the step has no update: it was Empty, Skipped or
// forward-only.
func (r *Result) Factor() (float64, error) {
	if r.Outcome != loss.Stepped || r.factor == 0 {
		return 0, ErrNoUpdate
	}
	if r.taken {
		return 0, ErrFactorTaken
	}
	r.taken = true
	return r.factor, nil
}

// Loss returns the value of the loss of that name, and whether it was recorded.
func (r *Result) Loss(name string) (float64, bool) {
	for i := range r.Losses {
		if r.Losses[i].Name == name {
			return r.Losses[i].Value, r.Losses[i].Present
		}
	}
	return 0, false
}
