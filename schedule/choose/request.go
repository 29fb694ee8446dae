package choose

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Request is a step for which a plan is chosen.
type Request struct {
	Ranks, Stages, Microbatches int
	// Costs are by stage of the model, or one entry for all. They are borrowed.
	Costs *simulate.Costs
	// Memory is the most bytes that may be live on a rank; 0 is any number.
	Memory int64
	// Far is the bytes of far memory that a rank has; with 0 nothing is offloaded.
	Far int64
	// Gathered is the number of stages whose weights a rank holds gathered at once, if the costs shard
	// weights; 0 searches it.
	Gathered int
	// Clock is the time that counts.
	Clock Clock
	// Runtime is the system that runs the plan.
	Runtime schedule.Runtime
	// Capacity is the number of messages that a link between ranks holds: schedule.Unlimited, or 0 or
	// more. For PyTorch, in which no rank waits at a transfer, it is taken to be 0, so that receives
	// are posted early.
	Capacity int
	// Reordered allows plans whose backward does not take microbatches in ascending
	// order, so that sums of gradients differ in their last bits from others.
	Reordered bool
}

// Clock is a time that a step takes.
type Clock uint8

const (
	// Makespan is from the first start to the last end over all ranks. If the costs have several
	// replicas, the time of a step with everything that they exchange counts in its place.
	Makespan Clock = iota
	// Span is the longest that a single rank takes, from its own first start to its own
	// last end. It is the time that counts if the optimizer of a rank waits for no other one.
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
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{schedule.ErrParams}, args...)...))
	}
	atMost := func(what string, n, most int) {
		if n < 1 || n > most {
			fault("%d %s: give 1 to %d", n, what, most)
		}
	}
	atMost("ranks", r.Ranks, maxRanks)
	atMost("stages", r.Stages, maxStages)
	atMost("microbatches", r.Microbatches, schedule.MaxMicrobatches)
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
	if r.Gathered < 0 || r.Gathered > 0 && r.Costs != nil && r.Costs.Shard != schedule.ShardWeights {
		fault("%d gathered stages at shard level %d: give 1 or more at level %d, or 0", r.Gathered, r.Costs.Shard, schedule.ShardWeights)
	}
	if r.Clock > Span {
		fault("clock %d is none: use Makespan or Span", r.Clock)
	}
	if r.Runtime > schedule.PyTorch {
		fault("runtime %d is none: use Weir or PyTorch", r.Runtime)
	}
	if r.Capacity < schedule.Unlimited {
		fault("capacity %d: give 0 or more, or %d for no limit", r.Capacity, schedule.Unlimited)
	}
	return errors.Join(append(faults, r.Costs.ValidateFor(r.Ranks, r.Stages))...)
}
