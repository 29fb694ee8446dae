package choose

import (
	"errors"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Request describes the step for which to choose a plan.
type Request struct {
	Ranks, Stages, Microbatches int
	// Costs contains an entry for each stage of the model, or one entry for all stages. Choose does not
	// modify it.
	Costs *simulate.Costs
	// Memory is the maximum number of live bytes on a rank; 0 means no limit.
	Memory int64
	// Far is the far memory of a rank in bytes; if it is 0, nothing is offloaded.
	Far int64
	// Gathered is the number of stages whose gathered weights a rank holds at the same time if the costs shard weights;
	// if it is 0, Choose tries several numbers.
	Gathered int
	// Clock is the time to minimize.
	Clock Clock
	// Runtime is the system that runs the plan.
	Runtime schedule.Runtime
	// Capacity is the number of messages that a link between ranks can hold, or schedule.Unlimited. For
	// PyTorch, where no rank waits at a transfer, Choose assumes 0, so that receives are posted early.
	Capacity int
	// Reordered allows plans whose backward does not run microbatches in ascending order. Their gradient
	// sums differ from those of other plans in the last bits.
	Reordered bool
}

// Clock is a way to measure the time of a step.
type Clock uint8

const (
	// Makespan is the time from the first start to the last end over all ranks. With several replicas
	// it is the time of a step including their exchanges.
	Makespan Clock = iota
	// Span is the longest time of a single rank, from its own first start to its own last end. Use it
	// if the optimizer of a rank does not wait for other ranks.
	Span
)

// The bounds on a request keep Choose from taking minutes.
const (
	maxRanks  = 128
	maxStages = 512
	maxSize   = 1 << 14 // ranks times stages
)

// Validate reports all faults of the request together. Each of the joined errors wraps schedule.ErrParams, or
// simulate.ErrCosts for a fault of the costs.
func (r *Request) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(schedule.ErrParams, format, args...))
	}
	checkRange := func(noun string, n, maximum int) {
		if n < 1 || n > maximum {
			fault("%d %s: give 1 to %d", n, noun, maximum)
		}
	}
	checkRange("ranks", r.Ranks, maxRanks)
	checkRange("stages", r.Stages, maxStages)
	checkRange("microbatches", r.Microbatches, schedule.MaxMicrobatches)
	if r.Ranks > 0 && r.Ranks <= maxRanks && r.Stages > maxSize/r.Ranks && r.Stages <= maxStages {
		fault("%d stages on %d ranks: give up to %d", r.Stages, r.Ranks, maxSize/r.Ranks)
	}
	if r.Memory < 0 {
		fault("%d bytes of memory: give 1 or more, or 0 for no limit", r.Memory)
	}
	if r.Far < 0 {
		fault("%d bytes of far memory: give 1 or more, or 0 for none", r.Far)
	}
	if r.Far > 0 && r.Runtime == schedule.PyTorch {
		fault("far memory for PyTorch, whose plans cannot offload: choose for Weir, or give 0 bytes")
	}
	switch {
	case r.Gathered < 0:
		fault("%d gathered stages: give 1 or more at shard level %d, or 0", r.Gathered, schedule.ShardWeights)
	case r.Gathered > 0 && r.Costs != nil && r.Costs.Shard != schedule.ShardWeights:
		fault("%d gathered stages at shard level %d: give 1 or more at level %d, or 0", r.Gathered, r.Costs.Shard, schedule.ShardWeights)
	}
	if r.Clock > Span {
		fault("unknown clock %d: use Makespan or Span", r.Clock)
	}
	if r.Runtime > schedule.PyTorch {
		fault("unknown runtime %d: use Weir or PyTorch", r.Runtime)
	}
	if r.Capacity < schedule.Unlimited {
		fault("capacity %d: give 0 or more, or %d for no limit", r.Capacity, schedule.Unlimited)
	}
	if err := r.Costs.ValidateFor(r.Ranks, r.Stages); err != nil {
		return errors.Join(append(faults, err)...)
	}
	return errors.Join(append(faults, r.Costs.ValidateLengths(r.Microbatches))...)
}
