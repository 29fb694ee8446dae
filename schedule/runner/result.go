package runner

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Result is the result of a step. The caller owns it. All numbers are the same on every rank.
type Result struct {
	Step         int64
	Microbatches int
	Outcome      loss.Outcome
	Losses       []loss.Value // in the order of Config.Losses
	// GradNorm is the norm of the gradient after multiplication by the factor, counting each
	// parameter once; 0 if there is no gradient.
	GradNorm float64
	// FirstNonFinite is the first microbatch with a loss that is not finite, or -1.
	FirstNonFinite int

	// The maximum over the ranks:
	Peak     int64 // highest number of live bytes
	Live     int64 // bytes live at the end
	Reserved int64
	Excess   int64 // the allocator's book minus the frames', at the end
	// Growth is the largest growth of a microbatch.
	Growth memory.Growth
	// PeakClasses is Peak by class at the moment of the peak, so that its sum is Peak.
	PeakClasses memory.ByClass

	// Planned reports that the memory of the step was planned on every rank. Height is then the
	// largest reservation of a rank.
	Planned bool
	Height  int64

	// FarPeak and FarHeight are the largest number of live bytes in the far memory of a rank, and
	// the largest reservation. FarWaits is how many actions of all ranks waited for a copy from or
	// to far memory. They are 0 if the step does not offload.
	FarPeak, FarHeight int64
	FarWaits           int64

	Books   int // books audited on every rank: 2, or 1 if a space has no book
	Actions int // of all ranks

	// Makespan is the time from the first computation of any rank to the end of the last one, by
	// the clocks of the ranks. Span is the longest such time of a single rank.
	Makespan, Span time.Duration
	Ranks          []RankResult
	// Simulated is the simulation of the plan with Plan.Costs; nil without costs. The runner owns
	// it.
	Simulated *simulate.Report

	factor  float64 // 0: there is no update
	refused error   // the reason, if Outcome does not say enough
	update  *update
}

// update is the one update of a training step, shared by the copies of its result.
type update struct {
	taken bool
	stale bool // another step has begun
	// unchanged returns an error if the gradients have changed since the step. It is nil after
	// its call, so that the results of ranks are equal.
	unchanged func() error
	// gather completes the weights of which replicas have updated parts, or ends the wait of the
	// others if the update has failed.
	gather func(failed error) error
}

// RankResult is the measurements of one rank. Sizes are bytes, as in Result.
type RankResult struct {
	Peak, Live, Reserved, Excess, Growth int64
	PeakClasses                          memory.ByClass // Peak by class
	Books, Actions                       int64
	// Planned reports that the memory of the step was planned on the rank. Height is then the
	// rank's reservation for the step, and PeakPlanned the planned value of Peak, or its upper
	// bound if the plan is for several shapes.
	Planned             bool
	Height, PeakPlanned int64
	// FarPeak, FarHeight and FarWaits are the rank's: see Result.
	FarPeak, FarHeight, FarWaits int64
	// Reduce and Gather are the durations of the rank's gradient reductions and weight gathers, which
	// run concurrently with its actions. ReplicaWait is the time that the rank waited for them. The
	// gathers of Update are not included.
	Reduce, Gather, ReplicaWait time.Duration
	// Start and End are the begin of the rank's first computation and the end of its last one,
	// since the first computation of any rank.
	Start, End time.Duration
	// Wait is how long transfers blocked between the two, or 0 if the transport is not a Watcher;
	// Work is the remaining time, including the source.
	Work, Wait time.Duration
}

// Bubble returns the fraction of the makespan in which the busiest rank does not work: 1 -
// work/makespan, or 0 for a step that took no time.
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

// Update calls apply with the factor by which the optimizer multiplies every gradient: 1 over the
// objective's total weight and the scale of the seeds (L10), a normal float32. It does so once; a
// second Update is ErrUpdated.
//
// Update works only for the runner's last training step, because the gradients are that step's.
// After another training step has begun, even if that step failed, Update is ErrStaleResult. If
// the step has no update, apply is not called, and the error wraps ErrNoUpdate: ErrSkipped,
// ErrEmpty, ErrRange, or ErrNoUpdate itself for an evaluation. A trainer that wants to continue
// after a skipped step checks for ErrSkipped. Gradients that were written to since the step are
// ErrOverwritten: Update computes their sums of squares again. After its first Update a runner
// refuses a step if the previous result was not updated (ErrUnused).
//
// Replicas that hold a part of the optimizer's state (Replicas.Shard 1 and 2) update the elements of
// each weight that they own (Owned), and Update gathers the others: every process must call it. If
// it fails in one process, it fails in all. After an evaluation that failed it returns an error
// before apply is called, and the step can be repeated.
func (r *Result) Update(apply func(factor float64) error) error {
	switch {
	case apply == nil:
		return errors.New("runner: the function of Update is nil: pass the optimizer's step, or a function that does nothing")
	case r.refused != nil:
		return r.refused
	case r.Outcome == loss.Skipped && r.FirstNonFinite >= 0:
		return fmt.Errorf("%w (first in the loss of microbatch %d)", ErrSkipped, r.FirstNonFinite)
	case r.Outcome == loss.Skipped:
		return ErrSkipped
	case r.Outcome == loss.Empty:
		return ErrEmpty
	case r.factor == 0:
		return ErrNoUpdate
	case r.update.stale:
		return fmt.Errorf("%w, and the gradients are no longer those of step %d: update before the next step", ErrStaleResult, r.Step)
	case r.update.taken:
		return ErrUpdated
	}
	gather := r.update.gather
	if err := r.update.unchanged(); err != nil {
		return gather(err)
	}
	r.update.taken, r.update.unchanged, r.update.gather = true, nil, nil
	return gather(apply(r.factor))
}

// Loss returns the value of the named loss, or NaN if it has none.
func (r *Result) Loss(name string) float64 {
	for i := range r.Losses {
		if r.Losses[i].Name == name && r.Losses[i].Present {
			return r.Losses[i].Value
		}
	}
	return math.NaN()
}

// rise raises the peak to the given one if that is higher.
func (r *Result) rise(peak int64, classes *memory.ByClass) {
	if peak > r.Peak {
		r.Peak, r.PeakClasses = peak, *classes
	}
}

// gather computes the result's numbers from the ranks' numbers, whose Start and End are by their
// clocks.
func (r *Result) gather(ranks []RankResult) {
	r.Ranks, r.Actions, r.Planned, r.FarPeak = ranks, 0, true, 0
	r.Peak = 0 // it was this rank's, and ranks may have equal peaks of different classes
	var start, end time.Duration
	for i := range ranks {
		rank := &ranks[i]
		r.rise(rank.Peak, &rank.PeakClasses)
		r.Live, r.Reserved = max(r.Live, rank.Live), max(r.Reserved, rank.Reserved)
		r.Excess, r.Growth.Bytes = max(r.Excess, rank.Excess), max(r.Growth.Bytes, rank.Growth)
		r.Books, r.Actions = min(r.Books, int(rank.Books)), r.Actions+int(rank.Actions)
		r.Planned, r.Height = r.Planned && rank.Planned, max(r.Height, rank.Height)
		r.FarPeak, r.FarHeight, r.FarWaits = max(r.FarPeak, rank.FarPeak), max(r.FarHeight, rank.FarHeight), r.FarWaits+rank.FarWaits
		if rank.Start == 0 {
			continue // it has no computations
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
