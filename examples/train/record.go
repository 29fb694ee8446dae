package main

import (
	"iter"
	"slices"

	"github.com/weir-ml/weir/internal/report"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

const (
	plotBuckets  = 240 // of every plot, however long the run
	lastActions  = 48
	lastMeasures = 32 // steps that the median of allocations is taken over
)

// record is what a run remembers of itself. Its size does not depend on how long
// the run is (L7).
type record struct {
	dev      kernels.Device
	log      *memlog.Log
	dump     func(err error, held iter.Seq[memory.Info]) // of a step that failed; nil: nobody wants it
	training bool                                        // evaluations are not a part of it

	microbatches int64
	growth       int64 // the largest of a microbatch
	live, peaks  *report.Envelope
	actions      []actionSample // a ring
	nextAction   int
	stats        memory.Stats

	train, heldout *report.Envelope // losses over steps
	firstLoss      float64
	lastLoss       float64
	firstScore     score
	lastScore      score
	steps          int
	books          int   // audited in the last step
	liveAfter      int64 // after the last step
	bytes          int64
	seconds        float64
	allocations    []uint64 // a ring
}

// actionSample is what was live before an action.
type actionSample struct {
	action  schedule.Action
	classes memory.ByClass
}

func newRecord() *record {
	return &record{
		live: report.NewEnvelope(plotBuckets), peaks: report.NewEnvelope(plotBuckets),
		train: report.NewEnvelope(plotBuckets), heldout: report.NewEnvelope(plotBuckets),
		actions: make([]actionSample, 0, lastActions), allocations: make([]uint64, 0, lastMeasures),
	}
}

// begin gives the record the device that it looks at and the log that it writes.
func (r *record) begin(dev kernels.Device, log *memlog.Log) { r.dev, r.log = dev, log }

// hooks returns what the runner tells the record. They allocate nothing.
func (r *record) hooks() runner.Hooks {
	return runner.Hooks{Action: r.action, Microbatch: r.microbatch, Failed: r.failed}
}

func (r *record) action(_ int, action schedule.Action) {
	if !r.training {
		return
	}
	r.dev.Stats(&r.stats)
	sample := actionSample{action, r.stats.Classes}
	if len(r.actions) < cap(r.actions) {
		r.actions = append(r.actions, sample)
		return
	}
	r.actions[r.nextAction] = sample
	r.nextAction = (r.nextAction + 1) % len(r.actions)
}

func (r *record) microbatch(sample *memory.Sample) {
	if !r.training {
		return
	}
	r.log.Sample(sample)
	r.growth = max(r.growth, sample.Growth)
	r.live.Add(float64(r.microbatches), float64(sample.Live))
	r.peaks.Add(float64(r.microbatches), float64(sample.Peak))
	r.microbatches++
}

// failed passes a failure on, with what the step held.
func (r *record) failed(err error, held iter.Seq[memory.Info]) {
	if r.dump != nil {
		r.dump(err, held)
	}
}

// step adds a training step, by how many steps the weights have seen after it.
func (r *record) step(step int, o outcome) {
	if r.steps == 0 {
		r.firstLoss = o.loss
	}
	r.lastLoss = o.loss
	r.train.Add(float64(step-1), o.loss) // the loss is that of the weights before it
	r.books, r.liveAfter = o.Books, o.Live
	r.bytes += o.bytes
	r.seconds += o.time.Seconds()
	if r.steps == 1 {
		r.allocations = r.allocations[:0] // the first step plans: it counts only where it is alone
	}
	if len(r.allocations) < cap(r.allocations) {
		r.allocations = append(r.allocations, o.allocations)
	} else {
		r.allocations[r.steps%len(r.allocations)] = o.allocations
	}
	r.steps++
}

// score adds an evaluation.
func (r *record) score(s score) {
	if !r.firstScore.known {
		r.firstScore = s
	}
	r.lastScore = s
	r.heldout.Add(float64(s.step), s.loss)
}

// speed returns the bytes trained on in a second.
func (r *record) speed() float64 {
	if r.seconds == 0 {
		return 0
	}
	return float64(r.bytes) / r.seconds
}

// allocationsPerStep returns the median over the last steps.
func (r *record) allocationsPerStep() uint64 {
	if len(r.allocations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.allocations))
	return sorted[len(sorted)/2]
}

// lastFew returns the last actions, the oldest first.
func (r *record) lastFew() []actionSample {
	return append(slices.Clone(r.actions[r.nextAction:]), r.actions[:r.nextAction]...)
}
