package runner

import "time"

// clock is what a rank has measured in a step.
type clock struct {
	first, last time.Time // begin of the first computation, end of the last one
	// waitedBefore and waited are for how long transfers had blocked by then.
	waitedBefore, waited time.Duration

	// With the hook of samples only:
	began  time.Time
	source time.Duration // in the source since the last sample
}

// waited returns for how long transfers of the step have blocked.
func (r *worker[T]) waited() time.Duration {
	if r.watcher == nil {
		return 0
	}
	return r.watcher.Waited()
}
