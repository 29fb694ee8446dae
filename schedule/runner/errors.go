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
	// ErrPlan is returned where the rule's plan, or the fixed one, is not what the step asks for.
	ErrPlan = errors.New("runner: the plan is not the one that was asked for")
	// ErrNoObjective is returned by Step where parameters train and none of the
	// losses is the objective.
	ErrNoObjective = errors.New("runner: parameters train and no loss is the objective")
	// ErrUpdated is returned by a second Update of a Result (L10).
	ErrUpdated = errors.New("runner: the update was applied already")
	// ErrStaleResult is returned by Update of a result that is not of the runner's last training
	// step: the gradients are no longer its own. A step that failed is the last one as well.
	ErrStaleResult = errors.New("runner: another training step has begun since")
	// ErrOverwritten is returned by Update if the gradients are not what the step has left.
	ErrOverwritten = errors.New("runner: the gradients were written to after the step")
	// ErrUnused is returned by Step where the step before it offered an update that was not
	// applied, once a runner was updated at all: one that never is evaluates gradients.
	ErrUnused = errors.New("runner: the gradients of the last step were not used: call Result.Update, with a function that does nothing to discard them")
	// ErrNoUpdate is returned by Update for an evaluation, and wrapped by ErrSkipped,
	// ErrEmpty and ErrRange.
	ErrNoUpdate = errors.New("runner: the step has no update")
	// ErrSkipped is returned by Update where a trained loss or a gradient is not finite.
	ErrSkipped = fmt.Errorf("%w: a loss or a gradient is not finite", ErrNoUpdate)
	// ErrEmpty is returned by Update where the objective's total weight is 0.
	ErrEmpty = fmt.Errorf("%w: the total weight of the objective is 0", ErrNoUpdate)
	// ErrRange is returned by Update where float32 cannot hold the factor, or the norm of
	// the gradient that it makes.
	ErrRange = fmt.Errorf("%w: float32 cannot hold the factor of the gradients", ErrNoUpdate)
	// ErrUnrecorded is returned at the end of a training step in which a stage has not
	// recorded the objective that it declares in every microbatch.
	ErrUnrecorded = errors.New("runner: the objective was not recorded")
	// ErrUnseeded is returned at the end of a training step in which a loss that trains was
	// recorded, if no call of its stage has ever asked for the seed of its gradient.
	ErrUnseeded = errors.New("runner: a loss trains and has no gradient")
	// ErrIndexed is returned at the end of a step whose source was made by Indexed and is no
	// function of Entry.Index: see Config.CheckSource.
	ErrIndexed = errors.New("runner: the source is no function of the index")
)

var errNoContext = errors.New("runner: the context is nil: take context.Background() where there is no other")

// Error is an error of a step with its place. It wraps the cause. On several ranks
// the first one ends the step on all of them, and all return it.
type Error struct {
	Rank       int
	Action     schedule.Action // as the plan has it; its kind is schedule.None at step end
	Microbatch int             // its number in the batch, as the source was told (Entry.Index)
	Name       string          // the stage's name
	Err        error
}

// Error says the place first.
func (e *Error) Error() string {
	if e.Action.Kind() == schedule.None {
		return fmt.Sprintf("runner: rank %d at step end: %v", e.Rank, e.Err)
	}
	return fmt.Sprintf("runner: rank %d action %v (stage %d %s, microbatch %d): %v",
		e.Rank, e.Action, e.Action.Stage(), e.Name, e.Microbatch, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
