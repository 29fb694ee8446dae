package fault_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// place is the point in a step at which an event happens.
type place uint8

const (
	atAction  place = iota // before an action, in the hook
	atCall                 // at the start of a stage's Forward or Backward
	atReturn               // at the end of a stage's Forward or Backward, after it has returned its tensors
	atAlloc                // a buffer is about to be allocated, by a stage or the source
	atSource               // the source is called
	atPut                  // the source has put all parts
	atRetire               // in the hook after a microbatch
	atOutputs              // the sink has taken over the outputs
	atEnd                  // after the last action, when gradients are added and losses merged
	numPlaces
)

var placeNames = [numPlaces]string{"action", "call", "return", "alloc", "source", "put", "retire", "outputs", "end"}

// fails reports whether the code at this point can return an error.
func (p place) fails() bool { return p != atAction && p != atRetire }

// fault is the way in which a step fails.
type fault uint8

const (
	returns fault = iota // an error
	panics
	exits   // runtime.Goexit, as t.FailNow does
	cancels // cancels the context of the step, and continues
	numFaults
)

var faultNames = [numFaults]string{"error", "panic", "goexit", "cancel"}

func (f fault) String() string { return faultNames[f] }

// Causes that the tests look for in the runner's errors.
var (
	errPlanted   = errors.New("planted error")
	errCancelled = errors.New("planted cause of a cancellation")
)

// planted is the value of planted panics: a pointer, whose identity shows that it arrived
// unchanged.
type planted struct{ event int }

// events numbers all events of a step, and makes the step fail at one of them.
type events struct {
	log    []event // of the running step
	action schedule.Action
	target int // index of the event to fail at, or -1
	fault  fault
	value  *planted
	cancel context.CancelCauseFunc
}

type event struct {
	place  place
	action schedule.Action // the current one
}

func (e event) String() string {
	return fmt.Sprintf("%s in %v of stage %d, microbatch %d", placeNames[e.place], e.action.Kind(), e.action.Stage(), e.action.Microbatch())
}

// actions returns the actions of the step.
func (e *events) actions() []schedule.Action {
	var actions []schedule.Action
	for _, event := range e.log {
		if event.place == atAction {
			actions = append(actions, event.action)
		}
	}
	return actions
}

// plan makes the next step fail at an event, or not at all if target is -1.
func (e *events) plan(target int, f fault, cancel context.CancelCauseFunc) {
	e.log = e.log[:0]
	e.action = 0
	e.target, e.fault, e.cancel = target, f, cancel
	e.value = &planted{target}
}

// end records an event that happens after the last action.
func (e *events) end() error {
	e.action = 0
	return e.happen(atEnd)
}

// happen records an event, and fails if it is the planned one.
func (e *events) happen(at place) error {
	e.log = append(e.log, event{at, e.action})
	if len(e.log)-1 != e.target {
		return nil
	}
	switch e.fault {
	case returns:
		if at == atAlloc {
			return fmt.Errorf("%w: planted", memory.ErrOutOfMemory)
		}
		return fmt.Errorf("wrapped by a stage: %w", errPlanted)
	case panics:
		explode(e.value)
	case exits:
		runtime.Goexit()
	case cancels:
		e.cancel(errCancelled)
	}
	return nil
}

// ending describes the end of a step with a planted fault.
type ending struct {
	returned bool
	result   *runner.Result
	err      error
	panicked any
	stack    string
}

// provoke runs a step that fails at an event, on a separate goroutine, so that it may end in
// any way.
func (e *events) provoke(target int, f fault, step func(context.Context) (*runner.Result, error)) ending {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	e.plan(target, f, cancel)
	var end ending
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if end.panicked = recover(); end.panicked != nil {
				end.stack = string(debug.Stack())
			}
		}()
		end.result, end.err = step(ctx)
		end.returned = true
	}()
	<-done
	return end
}

// require requires that Step reports the fault unchanged. The actions are the plan's.
func (e *events) require(t testing.TB, end ending, actions []schedule.Action) {
	t.Helper()
	require.Greater(t, len(e.log), e.target, "the planted fault was reached")
	at := e.log[e.target]
	switch e.fault {
	case panics:
		require.Same(t, e.value, end.panicked, "the value of the panic")
		require.Contains(t, end.stack, "fault_test.explode", "the stack still has the frames of the panic")
		require.Contains(t, end.stack, "runner.(*Runner[...])", "and of its caller")
		require.Equal(t, 1, strings.Count(end.stack, "\npanic("), "it was thrown once and never recovered")
		return
	case exits:
		require.False(t, end.returned, "Step did not return")
		require.Nil(t, end.panicked)
		return
	}
	require.True(t, end.returned)
	require.Nil(t, end.result)
	var typed *transport.StepError
	require.ErrorAs(t, end.err, &typed)
	require.Equal(t, 0, typed.Rank)
	switch {
	case e.fault == cancels:
		require.ErrorIs(t, end.err, errCancelled)
		// The running action ends; the next one does not begin.
		require.Equal(t, actions[slices.Index(actions, at.action)+1], typed.Action, "the error names the action that did not begin")
		require.Equal(t, at.action, e.action)
		return
	case at.place == atAlloc:
		require.ErrorIs(t, end.err, memory.ErrOutOfMemory)
	default:
		require.ErrorIs(t, end.err, errPlanted)
	}
	require.Equal(t, at.action, typed.Action, "the error names the action of the fault")
}

// explode panics. Its name must appear in the stack of the panic.
//
//go:noinline
func explode(value any) { panic(value) }

// watch makes the beginning and the end of every call of a stage an event, and checks that out
// and gradIn are empty at the beginning.
func watch(events *events, s stage) stage {
	p := probe{s, events}
	if split, ok := s.(stages.SplitBackward[tensor]); ok {
		return splitProbe{p, split}
	}
	return p
}

type probe struct {
	stage
	events *events
}

func (p probe) Unwrap() stage { return p.stage }

func (p probe) Forward(ctx context.Context, mb view, in, out []tensor) error {
	return p.around(out, func() error { return p.stage.Forward(ctx, mb, in, out) })
}

func (p probe) Backward(ctx context.Context, mb view, gradOut, gradIn []tensor) error {
	return p.around(gradIn, func() error { return p.stage.Backward(ctx, mb, gradOut, gradIn) })
}

func (p probe) around(to []tensor, call func() error) error {
	var none tensor
	for i, h := range to {
		if h != none {
			return fmt.Errorf("tensor %d of %d is not zero on entry", i, len(to))
		}
	}
	if err := p.events.happen(atCall); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return p.events.happen(atReturn)
}

type splitProbe struct {
	probe
	split stages.SplitBackward[tensor]
}

func (p splitProbe) BackwardInput(ctx context.Context, mb view, gradOut, gradIn []tensor) error {
	return p.around(gradIn, func() error { return p.split.BackwardInput(ctx, mb, gradOut, gradIn) })
}

func (p splitProbe) BackwardWeight(ctx context.Context, mb view) error {
	return p.around(nil, func() error { return p.split.BackwardWeight(ctx, mb) })
}

// TestEveryEvent makes a step fail at each of its events: before every action, at the start and
// the end of every call of a stage, at every allocation, in the source, in the hooks, each in
// every possible way. After each failure every buffer is released, and the next step gives the
// numbers of a run without a fault.
func TestEveryEvent(t *testing.T) {
	testkit.Slow(t)
	for _, d := range designs {
		for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
			name := d.name + "/training"
			if mode == schedule.ForwardOnly {
				name = d.name + "/evaluation"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { everyEvent(t, d, mode) })
			})
		}
	}
}

func everyEvent(t *testing.T, d design, mode schedule.Mode) {
	const m = 3
	broken, intact := newRig(t, d), newRig(t, d)
	require.Equal(t, intact.clean(mode, m), broken.clean(mode, m))
	log, actions := slices.Clone(intact.events.log), intact.events.actions()
	seen := map[place]int{}
	for target, at := range log {
		for f := range numFaults {
			if f == returns && !at.place.fails() {
				continue
			}
			before := broken.pool.book()
			e := broken.events.provoke(target, f, func(ctx context.Context) (*runner.Result, error) { return broken.step(ctx, mode, m) })
			if f == cancels && (at.place == atEnd || at.action == actions[len(actions)-1]) {
				require.NoError(t, e.err, "a cancellation has no effect after the last action has begun")
				require.Equal(t, intact.clean(mode, m), broken.readAndUpdate(mode, e.result))
			} else {
				broken.events.require(t, e, actions)
			}
			requireReleased(t, before, broken.pool.book())
			require.Equal(t, intact.clean(mode, m), broken.clean(mode, m), "after %v at event %d, %v", f, target, at)
			require.Equal(t, log, broken.events.log, "all steps have the same events")
			requireReleased(t, before, broken.pool.book())
			seen[at.place]++
		}
	}
	for p := range numPlaces {
		if p != atOutputs && p != atEnd || p == atOutputs == (mode == schedule.ForwardOnly) { // an evaluation has no gradients at its end
			require.Positive(t, seen[p], "no fault was planted at: %s", placeNames[p])
		}
	}
	require.NoError(t, broken.runner.Close())
	_, err := broken.step(context.Background(), mode, m)
	require.ErrorIs(t, err, runner.ErrClosed)
}
