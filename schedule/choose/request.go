package choose

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Request says what to choose for.
type Request struct {
	Ranks, Stages, Microbatches int
	// Costs are by stage of the model, or one entry for all. They are borrowed.
	Costs *simulate.Costs
	// Memory is the most bytes that may be live on a rank; 0 is any number.
	Memory int64
	// Clock is the time that counts.
	Clock Clock
	// Capacity is what a link between ranks holds: schedule.Unlimited, or 0 or more.
	Capacity int
	// Reordered allows plans whose backward does not take microbatches in ascending
	// order, so that sums of gradients differ in their last bits from others.
	Reordered bool
}

// Clock is a time that a step takes.
type Clock uint8

const (
	// Makespan is from the first start to the last end over all ranks.
	Makespan Clock = iota
	// Span is the longest that a single rank takes, from its own first start to its own
	// last end: what counts where the optimizer of a rank waits for no other one.
	Span
)

// The bounds of a request: within them none takes minutes.
const (
	maxRanks  = 128
	maxStages = 512
	maxSize   = 1 << 14 // ranks times stages
)

// Validate reports every fault of the request at once. Each of the joined errors wraps
// schedule.ErrParams, or simulate.ErrCosts if it is one of the costs.
func (r *Request) Validate() error {
	var faults []error
	fault := func(sentinel error, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{sentinel}, args...)...))
	}
	within := func(what string, n, most int) {
		if n < 1 || n > most {
			fault(schedule.ErrParams, "%d %s: give 1 to %d", n, what, most)
		}
	}
	within("ranks", r.Ranks, maxRanks)
	within("stages", r.Stages, maxStages)
	within("microbatches", r.Microbatches, schedule.MaxMicrobatches)
	if r.Ranks > 0 && r.Ranks <= maxRanks && r.Stages > maxSize/r.Ranks && r.Stages <= maxStages {
		fault(schedule.ErrParams, "%d stages on %d ranks: give up to %d", r.Stages, r.Ranks, maxSize/r.Ranks)
	}
	if r.Memory < 0 {
		fault(schedule.ErrParams, "%d bytes of memory: give 1 or more, or 0 for no limit", r.Memory)
	}
	if r.Clock > Span {
		fault(schedule.ErrParams, "clock %d is none: use Makespan or Span", r.Clock)
	}
	if r.Capacity < schedule.Unlimited {
		fault(schedule.ErrParams, "capacity %d: give 0 or more, or %d for no limit", r.Capacity, schedule.Unlimited)
	}
	if r.Costs == nil {
		fault(simulate.ErrCosts, "there are none")
		return errors.Join(faults...)
	}
	if err := r.Costs.Validate(); err != nil {
		return errors.Join(append(faults, err)...)
	}
	if n := len(r.Costs.Stages); n != 1 && n != r.Stages {
		fault(simulate.ErrCosts, "there are costs of %d stages for a model of %d: give one entry for all, or one for each", n, r.Stages)
	}
	if n := len(r.Costs.Resident); n != 0 && n != r.Ranks {
		fault(simulate.ErrCosts, "resident bytes are given for %d ranks of %d: give all, or none", n, r.Ranks)
	}
	for i, l := range r.Costs.Links {
		if l.From >= r.Ranks || l.To >= r.Ranks {
			fault(simulate.ErrCosts, "link %d is from rank %d to rank %d: ranks are 0 to %d", i, l.From, l.To, r.Ranks-1)
		}
	}
	return errors.Join(faults...)
}
