package stagetest

import (
	"errors"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

// diagnose reports the fault that caused the error of a step. If the step has already reported a
// fault, the error is only its consequence.
func (x *run[T]) diagnose(err error) {
	if t := x.trial; t.faults == 0 {
		code, text := x.verdict(err)
		t.fault(code, "%s", text)
	}
}

// sentinels are the errors of a call of the stage that have their own code.
var sentinels = []struct {
	err  error
	code Code
	text string
}{
	{batchctx.ErrUndeclared, Undeclared, "it accesses something that it did not declare"},
	{batchctx.ErrDropped, ReadsLate, "it reads an entry part or a copy of a weight in an action for which it did not declare the read"},
	{batchctx.ErrTaken, TakesTwice, "it takes a slot again"},
	{batchctx.ErrEmpty, TakesUnsaved, "it takes from a slot that it saved nothing in"},
	{batchctx.ErrOccupied, SavesTwice, "it saves in a slot that is in use"},
	{batchctx.ErrMisplaced, Misplaced, "it makes a call that this kind of action does not allow"},
	{batchctx.ErrContribution, ContributesTwice, "it contributes to a gradient again"},
	{batchctx.ErrEnded, KeepsView, "it uses a microbatch after its call"},
	{memory.ErrStale, UsesEnded, "it uses a tensor that was released"},
	{memory.ErrNone, UsesEnded, "it uses the zero tensor"},
	{memory.ErrNoPlain, ReleasesBorrowed, "it releases a tensor to which it has no reference of its own"},
}

// verdict returns the fault that an error of a step indicates.
func (x *run[T]) verdict(err error) (Code, string) {
	var leak *batchctx.LeakError
	var paniced *panicked
	switch {
	case errors.As(err, &paniced):
		return Panics, fmt.Sprintf("%v in %v", err, x.last.WithDrop(0))
	case errors.As(err, &leak):
		return x.leak(leak)
	case x.trial.probe.failed == nil:
		return x.handover(err)
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code, fmt.Sprintf("%s: %v", s.text, err)
		}
	}
	return Fails, fmt.Sprintf("it returns an error: %v", err)
}

// handover returns the fault of a stage whose calls succeeded, but whose results the runner
// refused.
func (x *run[T]) handover(err error) (Code, string) {
	var where *transport.StepError
	at := schedule.None
	if errors.As(err, &where) {
		at = where.Action.Kind()
	}
	switch {
	case errors.Is(err, runner.ErrUnseeded):
		return LacksSeed, fmt.Sprintf("it records a loss that trains and never asks for its seed: %v", err)
	case at == schedule.None && errors.Is(err, batchctx.ErrContribution):
		return ContributesNever, fmt.Sprintf("it contributes too seldom to a gradient: %v", err)
	case at != schedule.None && where.Action.Stage() != x.trial.number():
		return BadConfig, err.Error()
	case errors.Is(err, memory.ErrNoPlain):
		return ReturnsBorrowed, fmt.Sprintf("it returns a tensor to which it has no reference of its own: %v", err)
	case errors.Is(err, memory.ErrStale):
		return UsesEnded, fmt.Sprintf("it returns a tensor that was released: %v", err)
	}
	return Fails, err.Error()
}

// leak returns the fault for a leak that the books found, with the tensor to which the stage keeps
// a reference, if the watch knows it.
func (x *run[T]) leak(leak *batchctx.LeakError) (Code, string) {
	codes := [...]Code{asPart: KeepsPart, asGradient: KeepsGradient, asOutput: KeepsOutput, asInput: KeepsInput, asSaved: KeepsSaved}
	if k, ok := x.trial.watch.culprit(); ok {
		return codes[k.role], fmt.Sprintf("it keeps a reference to %s of microbatch %d: %v", k.name, k.microbatch, leak)
	}
	if leak.Bytes < 0 {
		return ReleasesBorrowed, fmt.Sprintf("it releases a tensor that the runner holds: %v", leak)
	}
	return Unreleased, fmt.Sprintf("it allocates and does not release: %v", leak)
}
