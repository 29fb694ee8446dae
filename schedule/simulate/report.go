package simulate

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Report is the result of a simulation. Times are in the steps of the costs, from the start of the
// simulation on.
type Report struct {
	Makespan int64 // from the first start of a computation to the last end, over all ranks
	Span     int64 // the longest that a single rank takes, from its own first start to its own last end
	Ideal    int64 // the work of the busiest rank
	Ranks    []RankReport

	// Critical is the critical path, from the start of the step to its last end: the step becomes
	// shorter only if the path does. Between two stretches a message passes, which takes from the
	// end of the one to the start of the other. It has at most the last 65,536 stretches, and is
	// nil if Run skipped repeats.
	Critical []Stretch
}

// RankReport is the result of a simulation for one rank.
type RankReport struct {
	First, Last int64 // start of the first computation and end of the last one
	Busy        int64 // time in computations
	Wait        int64 // the rest between First and Last
	// Communication is the part of Wait in which the message that the rank waited for was on the
	// wire between two ranks, or the copy on its way to far memory or back.
	Communication int64

	// Peak is the most bytes that are live at once, and Classes are these bytes by class.
	// PeakPosition and PeakAt are the first action at which it is reached, of a joined pair the
	// first of the two, and its position in the rank's program, each repeat counted: -1 on a rank
	// without actions.
	Peak         int64
	Classes      memory.ByClass
	PeakPosition int64
	PeakAt       schedule.Action
	// InFlight is the most microbatches in flight at once, each stage counted apart:
	// from F to the action that frees the last of what F has saved.
	InFlight int64
	// FarPeak is the most bytes that are in the rank's far memory at once.
	FarPeak int64
}

// Stretch is a part of a rank's program that runs without waiting, from the action at position
// First to the action at position Last.
type Stretch struct {
	Rank        int
	First, Last int64
	Start, End  int64
}

// BubbleMakespan returns the part of the makespan in which the busiest rank does not
// work, from 0 to 1.
func (r *Report) BubbleMakespan() float64 { return bubble(r.Ideal, r.Makespan) }

// BubbleSpan returns the part of the span in which the busiest rank does not work,
// from 0 to 1. Papers quote it if their optimizer step waits for no other rank.
func (r *Report) BubbleSpan() float64 { return bubble(r.Ideal, r.Span) }

// Idle returns the part of the time of all ranks in which they do not work, from 0 to 1, if
// the step takes as long as the clock says. Unlike a bubble it compares plans of different
// placements, since it does not depend on how evenly they distribute the work.
func (r *Report) Idle(clock int64) float64 {
	var work int64
	for i := range r.Ranks {
		work += r.Ranks[i].Busy
	}
	if clock == 0 {
		return 0
	}
	return 1 - float64(work)/float64(clock)/float64(len(r.Ranks))
}

func bubble(ideal, clock int64) float64 {
	if clock == 0 {
		return 0
	}
	return float64(clock-ideal) / float64(clock)
}
