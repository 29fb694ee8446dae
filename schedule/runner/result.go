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

// Result is what a step came to. It is the caller's. On several ranks all numbers
// are the same on every rank.
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

	// Of the rank that has most:
	Peak     int64 // bytes live at most
	Live     int64 // bytes live at the end
	Reserved int64
	Excess   int64 // bytes that the allocator's book has more than the context's, at the end
	// Growth is the largest of a microbatch.
	Growth memory.Growth
	// PeakClasses is Peak by class: what was live at that moment, so that the sum is Peak.
	PeakClasses memory.ByClass

	// Planned says that the memory of the step was planned on every rank. Height is then
	// what a rank had set aside for it, at most.
	Planned bool
	Height  int64

	Books   int // books audited on every rank: 2, or 1 where a space has none of its own
	Actions int // of all ranks

	// Makespan is from the first computation of any rank to the end of the last one,
	// by the clocks of the ranks. Span is that of the rank for which it is longest.
	Makespan, Span time.Duration
	Ranks          []RankResult
	// Simulated is what Plan.Costs say of the plan; nil without. It is the runner's.
	Simulated *simulate.Report

	factor  float64 // 0: there is no update
	refused error   // why, where there is more to say than Outcome does
	update  *update
}

// update is the one update of a training step, which the copies of its result share.
type update struct {
	taken bool
	stale bool // another step has begun
	// unchanged finds gradients that are not what the step has left; nil once it was asked, so
	// that the results of ranks are equal.
	unchanged func() error
}

// RankResult is what one rank has measured. Sizes are bytes, as in Result.
type RankResult struct {
	Peak, Live, Reserved, Excess, Growth int64
	PeakClasses                          memory.ByClass // Peak by class
	Books, Actions                       int64
	// Planned says that the memory of the step was planned on the rank: Height is what it
	// had set aside for the step, and PeakPlanned what Peak was to be, at most where the
	// plan is for several shapes.
	Planned             bool
	Height, PeakPlanned int64
	// Start and End are of its first and its last computation, since the first one of
	// any rank.
	Start, End time.Duration
	// Wait is for how long transfers blocked between the two, 0 where the transport is
	// no Watcher; Work is the rest, the source included.
	Work, Wait time.Duration
}

// Bubble returns the part of the makespan in which the busiest rank does not work: 1 -
// work/makespan, 0 for a step that took no time.
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

// Update calls apply with what the optimizer multiplies every gradient by: 1 over the
// objective's total weight and over the scale of the seeds (L10), a normal float32. It does
// so once: a second time is ErrUpdated. It does so for the runner's last training step alone,
// whose gradients these are: once another one has begun, whatever became of it, it is
// ErrStaleResult. Where the step has no update apply is not called, and the error wraps
// ErrNoUpdate: ErrSkipped, ErrEmpty, ErrRange, or itself for an evaluation. To go on after a
// step that was skipped is a choice that the trainer makes by looking for it. Gradients that
// were written to since the step are ErrOverwritten: Update sums their squares once more. Once a
// runner was updated, it refuses the step behind a result that was not (ErrUnused).
func (r *Result) Update(apply func(factor float64) error) error {
	switch {
	case apply == nil:
		return errors.New("runner: the function of Update is nil: give the optimizer's step, or a function that does nothing")
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
	if err := r.update.unchanged(); err != nil {
		return err
	}
	r.update.taken, r.update.unchanged = true, nil
	return apply(r.factor)
}

// Loss returns the value of the loss of that name, NaN where it has none.
func (r *Result) Loss(name string) float64 {
	for i := range r.Losses {
		if r.Losses[i].Name == name && r.Losses[i].Present {
			return r.Losses[i].Value
		}
	}
	return math.NaN()
}

// rise takes in what was live at most somewhere.
func (r *Result) rise(peak int64, classes *memory.ByClass) {
	if peak > r.Peak {
		r.Peak, r.PeakClasses = peak, *classes
	}
}

// gather makes the result's numbers of those of the ranks, whose Start and End are
// by their clocks.
func (r *Result) gather(ranks []RankResult) {
	r.Ranks, r.Actions, r.Planned = ranks, 0, true
	r.Peak = 0 // which was that of this rank, and ranks may have the same of different classes
	var start, end time.Duration
	for i := range ranks {
		rank := &ranks[i]
		r.rise(rank.Peak, &rank.PeakClasses)
		r.Live, r.Reserved = max(r.Live, rank.Live), max(r.Reserved, rank.Reserved)
		r.Excess, r.Growth.Bytes = max(r.Excess, rank.Excess), max(r.Growth.Bytes, rank.Growth)
		r.Books, r.Actions = min(r.Books, int(rank.Books)), r.Actions+int(rank.Actions)
		r.Planned, r.Height = r.Planned && rank.Planned, max(r.Height, rank.Height)
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
