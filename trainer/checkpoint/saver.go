package checkpoint

import (
	"time"

	"github.com/weir-ml/weir/trainer/safetensors"
)

// Saver writes the checkpoints of a run at intervals. Only Dir must be set. By default, saving
// takes about 1 % of the run's time. A Saver is not safe for concurrent use.
type Saver struct {
	Dir  string
	Keep int // number of checkpoints to keep; 0 means 2
	// Steps is the maximum number of steps, and Every the maximum time, between two
	// checkpoints. If both are 0, the interval is a hundred times the duration of the last
	// checkpoint, and at least a minute.
	Steps int64
	Every time.Duration

	at   time.Time // time of the last checkpoint, or of the first call of Due
	step int64     // the step at that time
	took time.Duration
}

// Due reports whether to write a checkpoint after this step. The first call, before a run's
// first step, starts the clock.
func (s *Saver) Due(step int64) bool {
	if s.at.IsZero() {
		s.at, s.step = time.Now(), step
		return false
	}
	every := s.Every
	if every == 0 && s.Steps == 0 {
		every = max(100*s.took, time.Minute)
	}
	return s.Steps > 0 && step-s.step >= s.Steps || every > 0 && time.Since(s.at) >= every
}

// Save writes a checkpoint of one process and removes all but the last Keep. If it fails, the earlier
// checkpoints remain, and the next one is due as if this one had been written.
func (s *Saver) Save(state State, tensors ...safetensors.Tensor) error {
	return s.SaveBy(state.Step, func() error { return Save(s.Dir, state, tensors...) })
}

// SaveBy is like Save, but calls write to write and commit the checkpoint, which several
// processes may share.
func (s *Saver) SaveBy(step int64, write func() error) error {
	began := time.Now()
	err := write()
	if err == nil {
		keep := s.Keep
		if keep == 0 {
			keep = 2
		}
		err = Prune(s.Dir, keep)
	}
	s.at, s.step = time.Now(), step
	s.took = s.at.Sub(began)
	return err
}
