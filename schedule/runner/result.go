package runner

import (
	"math"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Result is the result of a step. The caller owns it. All numbers are the same on every rank.
type Result struct {
	Step         int64
	Microbatches int
	Outcome      loss.Outcome
	Losses       []loss.Value // in the order of Config.Losses
	// GradNorm is the norm of the gradient after multiplication by the factor. It counts each
	// parameter once, and is 0 if the step has no update.
	GradNorm float64
	// FirstNonFinite is the first microbatch with a loss that is not finite, or -1.
	FirstNonFinite int
	// Audited is the microbatch that was computed more than once, with the same bits (Config.Audit), or -1. It is also
	// -1 if every replica that repeated it rounds differently from the author, because the bits are then not compared.
	Audited int

	// Maximums over the ranks:
	Peak     int64 // highest number of live bytes
	Live     int64 // live bytes at step end
	Reserved int64
	Excess   int64 // the allocator's book minus the frames' book at step end, without what earlier steps have leaked
	// Growth is the largest growth during a microbatch.
	Growth memory.Growth
	// PeakClasses splits Peak by class; its sum is Peak.
	PeakClasses memory.ByClass

	// Planned reports whether the memory of the step was planned on every rank. Height is then the
	// largest reservation on any rank.
	Planned bool
	Height  int64

	// FarPeak is the largest number of live bytes in any rank's far memory, and FarHeight is the
	// largest reservation there. FarWaits is the number of actions, over all ranks, that waited for a
	// copy to or from far memory. They are 0 if the step does not offload.
	FarPeak, FarHeight int64
	FarWaits           int64

	Books   int // books audited on every rank: 2, or 1 if a space has no book
	Actions int // number of actions of all ranks

	// Makespan is the time from the beginning of the first computation of any rank to the end of the
	// last one, by the ranks' clocks. Span is the longest such time of a single rank.
	Makespan, Span time.Duration
	Ranks          []RankResult
	// Plan is the plan that the ranks ran: if there are several replicas, it is the plan of the first replica of this
	// process. It is the same pointer in steps that run the same plan, and must not be changed.
	Plan *schedule.Plan

	factor  float64 // 0 if there is no update
	refused error   // the reason why there is no update; nil if Outcome is the whole reason
	update  *update
}

// RankResult holds the measurements of one rank. Sizes are in bytes, as in Result.
type RankResult struct {
	Peak, Live, Reserved, Excess, Growth int64
	PeakClasses                          memory.ByClass // Peak, split by class
	Books, Actions                       int64
	// Planned reports whether the memory of the step was planned on the rank. Height is then the
	// rank's reservation for the step, and PeakPlanned the planned Peak, or an upper bound if the
	// plan is for several shapes.
	Planned             bool
	Height, PeakPlanned int64
	// FarPeak, FarHeight and FarWaits are this rank's values: see Result.
	FarPeak, FarHeight, FarWaits int64
	// Reduce and Gather are the durations of the rank's gradient reductions and weight gathers, which
	// run concurrently with its actions. ReplicaWait is the time that the rank waited for them. The
	// gathers of Update are not included.
	Reduce, Gather, ReplicaWait time.Duration
	// Start is the beginning of the rank's first computation, and End is the end of its last one.
	// Both are relative to the beginning of the first computation on any rank.
	Start, End time.Duration
	// Wait is the time for which transfers, reductions and gathers blocked between Start and End, or 0 if
	// the transport is not a Watcher. Work is the rest of that time, including the source.
	Work, Wait time.Duration
}

// Bubble returns the fraction of the makespan during which the busiest rank does not work, 1 -
// work/makespan, or 0 if the makespan is 0.
func (r *Result) Bubble() float64 {
	if r.Makespan <= 0 {
		return 0
	}
	var ideal time.Duration
	for i := range r.Ranks {
		ideal = max(ideal, r.Ranks[i].Work)
	}
	return float64(r.Makespan-ideal) / float64(r.Makespan)
}

// Loss returns the value of the named loss, or NaN if there is no such loss or it has no value.
func (r *Result) Loss(name string) float64 {
	for i := range r.Losses {
		if r.Losses[i].Name == name && r.Losses[i].Present {
			return r.Losses[i].Value
		}
	}
	return math.NaN()
}

// raisePeak replaces the peak if the given one is higher.
func (r *Result) raisePeak(peak int64, classes *memory.ByClass) {
	if peak > r.Peak {
		r.Peak, r.PeakClasses = peak, *classes
	}
}

// gather computes the result from the measurements of all ranks. It changes their Start and End from
// Unix times to times since the first computation.
func (r *Result) gather(ranks []RankResult) {
	r.Ranks, r.Actions, r.Planned, r.FarPeak = ranks, 0, true, 0
	r.Peak = 0 // it held this rank's peak; if ranks have equal peaks, the first rank's classes are kept
	var start, end time.Duration
	for i := range ranks {
		rank := &ranks[i]
		r.raisePeak(rank.Peak, &rank.PeakClasses)
		r.Live, r.Reserved = max(r.Live, rank.Live), max(r.Reserved, rank.Reserved)
		r.Excess, r.Growth.Bytes = max(r.Excess, rank.Excess), max(r.Growth.Bytes, rank.Growth)
		r.Books, r.Actions = min(r.Books, int(rank.Books)), r.Actions+int(rank.Actions)
		r.Planned, r.Height = r.Planned && rank.Planned, max(r.Height, rank.Height)
		r.FarPeak, r.FarHeight, r.FarWaits = max(r.FarPeak, rank.FarPeak), max(r.FarHeight, rank.FarHeight), r.FarWaits+rank.FarWaits
		if rank.Start == 0 {
			continue // the rank has no computations
		}
		rank.Work = rank.End - rank.Start - rank.Wait
		if start == 0 || rank.Start < start {
			start = rank.Start
		}
		end, r.Span = max(end, rank.End), max(r.Span, rank.End-rank.Start)
	}
	r.Growth.Audited = r.Books > 1
	r.Makespan = end - start
	for i := range ranks {
		if rank := &ranks[i]; rank.Start != 0 {
			rank.Start, rank.End = rank.Start-start, rank.End-start
		}
	}
}
