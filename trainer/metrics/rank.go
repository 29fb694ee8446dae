package metrics

import (
	"slices"
	"time"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/trainer/report"
)

const (
	lastActions = 48 // number of actions kept of a rank
	mostOwners  = 64 // number of owners kept of a rank
	shownOwners = 16
)

// rank is the record of one rank. While a step runs, only the goroutine of the rank uses it.
type rank struct {
	book         memory.Book
	model        int64 // live bytes when the run began
	microbatches int64
	growth       int64          // the largest of a microbatch
	peak         memory.ByClass // the largest peak of all steps and evaluations
	live, peaks  *report.Envelope
	actions      []sample // a ring
	next         int
	running      *sample // the last action, until another one begins
	stats        memory.Stats
	owners       []memory.PeakOwner // at the peak, as far as there is room
}

// sample is the live bytes before an action, and the time at which it ran.
type sample struct {
	action     schedule.Action
	classes    memory.ByClass
	start, end time.Time // end is the end of its call: the next action began, or the microbatch ended
}

// own adds an owner at the peak.
func (r *rank) own(o memory.PeakOwner) {
	if len(r.owners) < cap(r.owners) {
		r.owners = append(r.owners, o)
	}
}

// action records the live bytes before a computation.
func (r *rank) action(action schedule.Action) {
	if r.book == nil {
		return
	}
	now := r.stop()
	if !action.Kind().Compute() {
		return
	}
	r.book.Stats(&r.stats)
	s := sample{action: action, classes: r.stats.Classes, start: now, end: now}
	if len(r.actions) < cap(r.actions) {
		r.actions = append(r.actions, s)
		r.running = &r.actions[len(r.actions)-1]
		return
	}
	r.actions[r.next] = s
	r.running = &r.actions[r.next]
	r.next = (r.next + 1) % len(r.actions)
}

// stop ends the current action, and returns the time.
func (r *rank) stop() time.Time {
	now := time.Now()
	if r.running != nil {
		r.running.end, r.running = now, nil
	}
	return now
}

// microbatch adds a record of the memory log.
func (r *rank) microbatch(s *memory.Sample) {
	r.growth = max(r.growth, s.Growth)
	r.live.Add(float64(r.microbatches), float64(s.Live))
	r.peaks.Add(float64(r.microbatches), float64(s.Peak))
	r.microbatches++
}

// lastFew returns the last actions, the oldest first.
func (r *rank) lastFew() []sample {
	return append(slices.Clone(r.actions[r.next:]), r.actions[:r.next]...)
}

// Action is one of the last computations of a rank.
type Action struct {
	Action     schedule.Action
	Live       memory.ByClass // before it
	Start, End time.Duration  // since a moment; End is the end of its call
}

// LastActions returns the last few computations of a rank, the oldest first.
func (r *Run) LastActions(rank int, since time.Time) (all []Action) {
	for _, a := range r.ranks[rank].lastFew() {
		all = append(all, Action{a.action, a.classes, a.start.Sub(since), a.end.Sub(since)})
	}
	return all
}

// SetLastActions makes the page show actions of a rank that runs in another process. since is the
// local time of that process's moment from which it counts.
func (r *Run) SetLastActions(rank int, since time.Time, actions []Action) {
	to := &r.ranks[rank]
	to.actions, to.next, to.running = to.actions[:0], 0, nil
	for _, a := range actions[max(0, len(actions)-lastActions):] {
		to.actions = append(to.actions, sample{a.Action, a.Live, since.Add(a.Start), since.Add(a.End)})
	}
}

// clocks adds up the times of a run's steps.
type clocks struct {
	steps      int
	makespan   time.Duration
	ideal      time.Duration // work of the busiest rank
	work, wait []time.Duration
	simulated  *simulate.Report // nil without costs
}

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

// bubble returns the fraction of the makespans in which the busiest rank did not work.
func (c *clocks) bubble() float64 {
	if c.makespan == 0 {
		return 0
	}
	return 1 - c.ideal.Seconds()/c.makespan.Seconds()
}
