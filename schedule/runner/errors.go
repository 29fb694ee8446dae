package runner

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule"
)

var (
	// ErrShortBatch is returned when the source ends before it gave M entries.
	ErrShortBatch = errors.New("runner: the source ended early")
	// ErrClosed is returned by a runner after Close.
	ErrClosed = errors.New("runner: closed")
	// ErrBusy is returned for a step that begins while another one runs.
	ErrBusy = errors.New("runner: a step is running already")
	// ErrPlan is returned where the rule's plan is not the one that was asked for.
	ErrPlan = errors.New("runner: the rule made another plan than it was asked for")
	// ErrNoObjective is returned by Step where parameters train and none of the
	// losses is the objective.
	ErrNoObjective = errors.New("runner: parameters train and no loss is the objective")
	// ErrFactorTaken is returned when the factor of a Result is taken twice (L10).
	ErrFactorTaken = errors.New("runner: the factor was taken already")
	// ErrNoUpdate is returned when the factor of an Empty, Skipped or forward-only step is asked for.
	ErrNoUpdate = errors.New("runner: the step has no update")
)

// Error is an error of a step with its place. It wraps the cause.
type Error struct {
	Rank   int
	Action schedule.Action // its kind is schedule.None at step end
	Name   string          // the stage's name
	Err    error
}

// Error says the place first.
func (e *Error) Error() string {
	if e.Action.Kind() == schedule.None {
		return fmt.Sprintf("runner: rank %d at step end: %v", e.Rank, e.Err)
	}
	return fmt.Sprintf("runner: rank %d action %v (stage %d %s, microbatch %d): %v",
		e.Rank, e.Action, e.Action.Stage(), e.Name, e.Action.Microbatch(), e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
