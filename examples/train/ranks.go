package main

import (
	"slices"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/report"
)

const (
	plotBuckets = 240 // of every plot, however long the run
	lastActions = 48
)

// rankRecord is what a run remembers of one rank. While a step runs it belongs to the
// goroutine of the rank.
type rankRecord struct {
	dev          kernels.Device
	microbatches int64
	growth       int64 // the largest of a microbatch
	live, peaks  *report.Envelope
	actions      []actionSample // a ring
	nextAction   int
	stats        memory.Stats
}

// actionSample is what was live before an action.
type actionSample struct {
	action  schedule.Action
	classes memory.ByClass
}

func newRankRecord() rankRecord {
	return rankRecord{
		live: report.NewEnvelope(plotBuckets), peaks: report.NewEnvelope(plotBuckets),
		actions: make([]actionSample, 0, lastActions),
	}
}

// action keeps what is live before a computation.
func (r *rankRecord) action(action schedule.Action) {
	if !action.Kind().Compute() {
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

// microbatch adds a record of the memory log.
func (r *rankRecord) microbatch(sample *memory.Sample) {
	r.growth = max(r.growth, sample.Growth)
	r.live.Add(float64(r.microbatches), float64(sample.Live))
	r.peaks.Add(float64(r.microbatches), float64(sample.Peak))
	r.microbatches++
}

// lastFew returns the last actions, the oldest first.
func (r *rankRecord) lastFew() []actionSample {
	return append(slices.Clone(r.actions[r.nextAction:]), r.actions[:r.nextAction]...)
}

// clocks add up what the steps of a run took.
type clocks struct {
	steps      int
	makespan   time.Duration
	ideal      time.Duration // work of the busiest rank
	work, wait []time.Duration
	simulated  *simulate.Report // nil without costs
}

// add adds a step.
func (c *clocks) add(result *runner.Result) {
	if c.work == nil {
		c.work, c.wait = make([]time.Duration, len(result.Ranks)), make([]time.Duration, len(result.Ranks))
	}
	busiest := time.Duration(0)
	for i := range result.Ranks {
		rank := &result.Ranks[i]
		c.work[i] += rank.Work
		c.wait[i] += rank.Wait
		busiest = max(busiest, rank.Work)
	}
	c.steps++
	c.makespan += result.Makespan
	c.ideal += busiest
	c.simulated = result.Simulated
}

// mean returns the seconds of a step that add up to total.
func (c *clocks) mean(total time.Duration) float64 {
	return total.Seconds() / float64(max(c.steps, 1))
}

// bubble returns the part of the makespans in which the busiest rank did not work.
func (c *clocks) bubble() float64 {
	if c.makespan == 0 {
		return 0
	}
	return 1 - c.ideal.Seconds()/c.makespan.Seconds()
}
