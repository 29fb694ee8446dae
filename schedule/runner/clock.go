package runner

import "time"

// clock has the time measurements of a rank in a step.
type clock struct {
	first, last time.Time // begin of the first computation, end of the last one
	// waitedBefore and waited are how long transfers had blocked at first and at last.
	waitedBefore, waited time.Duration

	// Only with Hooks.Microbatch:
	began  time.Time
	source time.Duration // in the source since the last sample
}

// waited returns how long transfers of the step have blocked.
func (r *worker[T]) waited() time.Duration {
	if r.watcher == nil {
		return 0
	}
	waited := r.watcher.Waited()
	if r.shards != nil {
		waited += r.shards.reduces.waited + r.shards.gathers.waited
	}
	return waited
}
