package main

import (
	"iter"
	"slices"
	"sync"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/report"
)

const lastMeasures = 32 // steps that the median of allocations is taken over

// record is what a run remembers of itself. Its size does not depend on how long
// the run is (L7).
type record struct {
	dump     func(rank int, err error, held iter.Seq[memory.Info]) // of a step that failed; nil: nobody wants it
	training bool                                                  // evaluations are not a part of it
	ranks    []rankRecord
	clocks   clocks
	logging  sync.Mutex
	log      *memlog.Log // of all ranks

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

func newRecord(ranks int) *record {
	r := &record{
		train: report.NewEnvelope(plotBuckets), heldout: report.NewEnvelope(plotBuckets),
		allocations: make([]uint64, 0, lastMeasures),
	}
	for range ranks {
		r.ranks = append(r.ranks, newRankRecord())
	}
	return r
}

// begin gives the record the devices that it looks at and the log that it writes.
func (r *record) begin(devs []*kernels.Host, log *memlog.Log) {
	for rank, dev := range devs {
		r.ranks[rank].dev = dev
	}
	r.log = log
}

// plan writes into the log who has what at the planned peak of the steps from first on;
// nothing where their memory is not planned.
func (r *record) plan(memory *layout.Plan, first int) {
	if memory == nil {
		return
	}
	for owner := range memory.Owners(int64(first)) {
		r.log.PeakOwner(&owner)
	}
}

// hooks returns what the runner of a rank tells the record. They allocate nothing.
func (r *record) hooks(rank int) runner.Hooks {
	return runner.Hooks{
		Action:     r.action,
		Microbatch: r.microbatch,
		Peak:       r.peak,
		Failed: func(err error, held iter.Seq[memory.Info]) {
			if r.dump != nil {
				r.dump(rank, err, held)
			}
		},
	}
}

func (r *record) action(rank int, action schedule.Action) {
	if r.training {
		r.ranks[rank].action(action)
	}
}

func (r *record) microbatch(sample *memory.Sample) {
	if !r.training {
		return
	}
	r.ranks[sample.Rank].microbatch(sample)
	r.logging.Lock()
	defer r.logging.Unlock()
	r.log.Sample(sample)
}

// peak writes into the log who had what at the peak of a step whose memory is not planned.
func (r *record) peak(owners iter.Seq[memory.PeakOwner]) {
	if !r.training {
		return
	}
	r.logging.Lock()
	defer r.logging.Unlock()
	for owner := range owners {
		r.log.PeakOwner(&owner)
	}
}

// growth returns the largest growth of a microbatch, in bytes.
func (r *record) growth() (most int64) {
	for i := range r.ranks {
		most = max(most, r.ranks[i].growth)
	}
	return most
}

// microbatches returns how many were audited, each on every rank that it visits.
func (r *record) microbatches() (most int64) {
	for i := range r.ranks {
		most = max(most, r.ranks[i].microbatches)
	}
	return most
}

// step adds a training step, by how many steps the weights have seen after it.
func (r *record) step(step int, o outcome) {
	if r.steps == 0 {
		r.firstLoss = o.loss
	}
	r.lastLoss = o.loss
	r.train.Add(float64(step-1), o.loss) // the loss is that of the weights before it
	r.books, r.liveAfter = o.Books, o.Live
	r.clocks.add(o.Result)
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
