package runner

import "time"

// clock holds the time measurements of a rank in a step.
type clock struct {
	first, last time.Time // the beginning of the first computation, and the end of the last one
	// waitedBefore and waited are the times that the rank had waited by first and by last: see worker.waited.
	waitedBefore, waited time.Duration

	// Only with Hooks.Microbatch:
	began  time.Time
	source time.Duration // time spent in the source since the last sample
}

// waited returns how long the rank has waited so far for the step's transfers, reductions and gathers, or
// 0 if the transport is not a Watcher.
func (r *worker[T]) waited() time.Duration {
	if r.links.watcher == nil {
		return 0
	}
	waited := r.links.watcher.Waited()
	if r.params.shared != nil {
		waited += r.params.shared.Waited()
	}
	return waited
}
