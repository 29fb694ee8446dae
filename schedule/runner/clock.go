package runner

import "time"

// clock holds the time measurements of a rank in a step.
type clock struct {
	first, last time.Time // the beginning of the first computation, and the end of the last one
	// waitedBefore and waited are the total times for which transfers had blocked by first and by last.
	waitedBefore, waited time.Duration

	// Only with Hooks.Microbatch:
	began  time.Time
	source time.Duration // time spent in the source since the last sample
}

// waited returns how long the step's transfers have blocked so far.
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
