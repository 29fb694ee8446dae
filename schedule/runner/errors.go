package runner

import (
	"errors"
	"fmt"
)

var (
	// ErrShortBatch is returned if the source ends before it has supplied M entries.
	ErrShortBatch = errors.New("runner: the source ended early")
	// ErrClosed is returned by a runner after Close.
	ErrClosed = errors.New("runner: closed")
	// ErrBusy is returned by a call that needs the runner while it runs a step, an evaluation or an update.
	ErrBusy = errors.New("runner: a step is running already")
	// ErrPlan is returned if the rule's plan, or the fixed plan, does not fit the step or the configuration.
	ErrPlan = errors.New("runner: the plan does not match the request")
	// ErrNoObjective is returned by Step if parameters train and no loss is the objective.
	ErrNoObjective = errors.New("runner: parameters train, but no loss is the objective")
	// ErrUpdated is returned by a second Update of a Result (L10).
	ErrUpdated = errors.New("runner: the update was applied already")
	// ErrStaleResult is returned by Update if another training step has begun since, even if it
	// failed: the gradients no longer belong to the result.
	ErrStaleResult = errors.New("runner: another training step has begun since")
	// ErrOverwritten is returned by Update if the gradients have changed since the step. The next step may begin
	// without an update.
	ErrOverwritten = errors.New("runner: the gradients were written to after the step")
	// ErrUnused is returned by Step if the update of the previous step was not applied. It is not
	// returned before the first update: such a runner only computes gradients.
	ErrUnused = errors.New("runner: the gradients of the last step were not used: call Result.Update, with a function that does nothing to discard them")
	// ErrNoUpdate is returned by Update for an evaluation or a step without an objective, and is wrapped
	// by ErrSkipped, ErrEmpty and ErrRange.
	ErrNoUpdate = errors.New("runner: the step has no update")
	// ErrSkipped is returned by Update if a trained loss or a gradient is not finite.
	ErrSkipped = fmt.Errorf("%w: a loss or a gradient is not finite", ErrNoUpdate)
	// ErrEmpty is returned by Update if the objective's total weight is 0.
	ErrEmpty = fmt.Errorf("%w: the total weight of the objective is 0", ErrNoUpdate)
	// ErrRange is returned by Update if float32 cannot hold the factor, or the norm of the
	// gradient that it produces.
	ErrRange = fmt.Errorf("%w: float32 cannot hold the factor of the gradients", ErrNoUpdate)
	// ErrUnrecorded is returned at the end of a training step if a stage that declares the
	// objective has not recorded it in every microbatch.
	ErrUnrecorded = errors.New("runner: the objective was not recorded")
	// ErrUnseeded is returned at the end of a training step if a loss that trains was recorded, but
	// its stage never asked for the seed of its gradient.
	ErrUnseeded = errors.New("runner: a loss trains but has no gradient")
	// ErrUnasked is returned at the end of a training step with sharded weights (Replicas.Shard 3) if
	// a stage with parameters did not ask for any of its weights.
	ErrUnasked = errors.New("runner: a stage computes with weights that it did not ask for")
	// ErrIndexed is returned at the end of a step whose Indexed or IndexedShapes source depends on more than
	// Entry.Index: see Config.CheckSource. In an audited step (Config.Audit), the cause may also be a bit of an entry
	// that has changed in the memory of a rank.
	ErrIndexed = errors.New("runner: the source is not a function of the index")
	// ErrCorrupt is returned at the end of an audited step (Config.Audit) if the same computation has given
	// different bits, or if weights differ between replicas or have changed during the step. The error is a
	// transport.StepError. It names the rank, the stage and, unless it is about weights, the microbatch.
	ErrCorrupt = errors.New("runner: silent data corruption")
)

var errNoContext = errors.New("runner: the context is nil: pass context.Background() if there is no other")
