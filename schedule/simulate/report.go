package simulate

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Report is the result of a simulation. Times are in ticks (see [Costs]), from the start of the
// simulation.
type Report struct {
	Makespan int64 // from the first start of a computation to the last end, over all ranks
	Span     int64 // the longest time of a single rank, from the start of its first computation to the end of its last
	// Step is the time from the start of the simulation to the end of the last computation or exchange
	// between replicas: the last reduction, and the gather of the new weights if each replica updates a
	// part of them and keeps all of them. It excludes the update itself.
	Step  int64
	Ideal int64 // the computing time of the busiest rank
	Ranks []RankReport

	// Critical is the critical path, from the start of the step to the end of the last computation.
	// The step cannot become shorter unless the path does. Between two stretches, a message is in
	// flight from the end of the first stretch to the start of the second. Critical contains at most
	// the last 65,536 stretches, and is nil if Run has simulated a plan of more than 65,536 actions.
	Critical []Stretch
}

// RankReport is the result of a simulation for one rank.
type RankReport struct {
	First, Last int64 // the start of the first computation and the end of the last one
	Busy        int64 // the time spent in computations
	Wait        int64 // the remaining time between First and Last
	// Communication is the part of Wait during which the awaited message was on the wire, or the
	// awaited copy to or from far memory, or exchange between replicas, was in progress.
	Communication int64
	// Copies is the part of Wait spent waiting for copies to and from far memory, whether in
	// progress or queued behind other copies.
	Copies int64

	// Peak is the maximum number of live bytes, and Classes contains these bytes by class. PeakAt is
	// the first action at which the peak is reached; for a joined pair, it is the first action of the
	// pair. PeakPosition is the position of PeakAt in the rank's program, counting every repeat, or -1
	// if the rank has no actions.
	Peak         int64
	Classes      memory.ByClass
	PeakPosition int64
	PeakAt       schedule.Action
	// InFlight is the maximum number of microbatches in flight, counting each stage separately. A
	// microbatch is in flight from its F to the action that frees the last of its saved state.
	InFlight int64
	// FarPeak is the maximum number of bytes in the rank's far memory.
	FarPeak int64

	// Unshards is the number of UNSHARDs. GatheredBytes is the number of bytes that the rank receives
	// from other replicas, and sends to them, for UNSHARDs and for the new weights at the end of a
	// step. ReducedBytes is the corresponding number for reductions.
	Unshards, GatheredBytes, ReducedBytes int64
	// GatherWait is the time for which computations waited for gathered weights. Reducing is the time
	// for which reductions occupied the rank's lane. ReduceWait is the part of the reductions' time
	// that computations did not hide: the waits before the last computation, and the time after it.
	GatherWait, Reducing, ReduceWait int64
}

// Stretch is a part of a rank's program that ran without waiting, from the action at position First
// to the action at position Last.
type Stretch struct {
	Rank        int
	First, Last int64
	Start, End  int64
}

// BubbleMakespan returns the fraction of the makespan during which the busiest rank does not
// compute, or 0 if the makespan is 0.
func (r *Report) BubbleMakespan() float64 { return bubble(r.Ideal, r.Makespan) }

// BubbleSpan returns the fraction of the span during which the busiest rank does not compute, or 0 if
// the span is 0. Papers report this fraction if their optimizer step does not wait for other ranks.
func (r *Report) BubbleSpan() float64 { return bubble(r.Ideal, r.Span) }

// Idle returns the fraction of the ranks' total time during which they do not compute, for a step
// that takes the given time, or 0 if the time is 0. Unlike a bubble, it can be used to compare plans with
// different placements, because it does not depend on how evenly they distribute the work.
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
