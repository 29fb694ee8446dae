package metrics

import (
	"slices"
	"time"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
)

// lastActions is the number of actions kept per rank.
const lastActions = 48

// rankRecord is the record of one rank. While a step runs, only the rank's goroutine uses it.
type rankRecord struct {
	book    memory.Book
	model   int64          // live bytes when the run began
	peak    memory.ByClass // the largest peak over all steps and evaluations
	origin  time.Time
	actions []Action // a ring; times are relative to origin
	next    int
	running *Action // the last action, until it ends
	stats   memory.Stats
}

// Action is one of the last computations of a rank.
type Action struct {
	Action     schedule.Action
	Live       memory.ByClass // live bytes before the computation
	Start, End time.Duration  // since a common moment; End is at the latest the start of the rank's next action
}

// action records the start of a computation, and the live bytes before it.
func (r *rankRecord) action(action schedule.Action) {
	if r.book == nil {
		return
	}
	now := r.stop()
	if !action.Kind().Compute() {
		return
	}
	r.book.Stats(&r.stats)
	s := Action{action, r.stats.Classes, now, now}
	if len(r.actions) < cap(r.actions) {
		r.actions = append(r.actions, s)
		r.running = &r.actions[len(r.actions)-1]
		return
	}
	r.actions[r.next] = s
	r.running = &r.actions[r.next]
	r.next = (r.next + 1) % len(r.actions)
}

// stop ends the current action, and returns the time since origin. The call of an action is taken
// to end when the next action begins, or when its microbatch or step ends.
func (r *rankRecord) stop() time.Duration {
	now := time.Since(r.origin)
	if r.running != nil {
		r.running.End, r.running = now, nil
	}
	return now
}

// lastFew returns the last actions, the oldest first.
func (r *rankRecord) lastFew() []Action {
	return append(slices.Clone(r.actions[r.next:]), r.actions[:r.next]...)
}

// LastActions returns the last few computations of a rank, the oldest first. Their times count from since.
func (r *Recorder) LastActions(rank int, since time.Time) []Action {
	of := &r.ranks[rank]
	return later(of.lastFew(), of.origin.Sub(since))
}

// SetLastActions makes the page show the actions of a rank that runs in another process. since is
// the moment from which their times count, by the local clock.
func (r *Recorder) SetLastActions(rank int, since time.Time, actions []Action) {
	to := &r.ranks[rank]
	to.actions, to.next, to.running = to.actions[:0], 0, nil
	to.actions = append(to.actions, actions[max(0, len(actions)-lastActions):]...)
	later(to.actions, since.Sub(to.origin))
}

// later shifts actions in time, and returns them.
func later(actions []Action, by time.Duration) []Action {
	for i := range actions {
		actions[i].Start += by
		actions[i].End += by
	}
	return actions
}

// clocks adds up the times of a run's steps.
type clocks struct {
	steps      int
	makespan   time.Duration
	ideal      time.Duration // sum over steps of the busiest rank's work
	work, wait []time.Duration
	plan       *schedule.Plan   // of the last step
	simulated  *simulate.Report // of plan; nil without costs
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
}

// mean returns the mean time of a step, in seconds, given the total over all steps.
func (c *clocks) mean(total time.Duration) float64 {
	return total.Seconds() / float64(max(c.steps, 1))
}

// bubble returns the fraction of the makespans during which the busiest rank did not work.
func (c *clocks) bubble() float64 {
	if c.makespan == 0 {
		return 0
	}
	return 1 - c.ideal.Seconds()/c.makespan.Seconds()
}
