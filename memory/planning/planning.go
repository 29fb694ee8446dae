package planning

import (
	"context"
	"time"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// Planner plans the memory of steps. It knows what the stages and sources allocate.
//
// If a Planner also has the method Validate() error, runner.New calls it and returns its error.
type Planner interface {
	// OffloadSlots returns the slots of saved state to offload, in the form of schedule.Plan.OffloadSlots: for
	// each stage of a placement, slots that hold at most the given share of the bytes that the stage saves.
	OffloadSlots(placement *schedule.Placement, share float64) []uint64
	// Plan plans the memory of all ranks. It returns an error if a rank needs more than the budget. The
	// runner does not change the step afterwards.
	Plan(ctx context.Context, step *Step) (Plan, error)
}

// Plan is the planned memory of a step. The ranks of a process call its methods concurrently.
type Plan interface {
	// Layouts returns the layout of a rank's memory, and that of its far memory, which is nil if the
	// rank offloads nothing.
	Layouts(rank int) (near, far *memory.Layout)
	// AppendParts appends one number to parts for each allocation that the source makes for a microbatch of
	// which a rank wants the given set of parts, in the order of the layout: the number of the part that the
	// allocation is handed over as, or -1. It appends nothing if the order is unknown; then the source must
	// allocate in the order of the layout.
	AppendParts(parts []int, microbatch int, wanted uint64) []int
	// Names returns the names of the buffers that are allocated at a place of a rank's layout, for errors.
	Names(rank, place int) []string
}

// Step is a step whose memory is to be planned.
type Step struct {
	Plan      *schedule.Plan // with lifetimes, and with transfers if there are several ranks
	Replicas  int            // number of data-parallel replicas, 1 or more
	LookAhead int            // number of entries that a rank pulls before it needs them
	// Shapes is the shape class of each microbatch. Nil means microbatches of any class, and shorter
	// ones: every size is then an upper bound.
	Shapes []int
	Budget int64 // maximum number of bytes on a rank; 0 means no limit
	Search Search
	// Plan was made with Rule, Params and Passes. A planner may use them to find plans that fit the budget,
	// and name these in its error.
	Rule   schedule.Rule
	Params schedule.Params
	Passes lower.Passes
}

// Search limits the search for a good layout on each rank. With the zero value it takes milliseconds for
// up to a few hundred microbatches.
type Search struct {
	Nodes int64         // number of placements of buffers, about a microsecond each; 0 means the planner's default
	Time  time.Duration // time after which the best layout so far is taken; 0 means no limit
}
