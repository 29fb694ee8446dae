package batchctx

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
)

// view is the view of one stage call: the part that a Microbatch and a Quantization share.
type view[T any] struct {
	call       *frames.StageCall[T]
	generation uint64
}

func newView[T any](call *frames.StageCall[T]) view[T] {
	return view[T]{call, call.Frames.Generation()}
}

// live returns the call, and fails if the view has ended or failed.
func (v view[T]) live() *frames.StageCall[T] {
	if f := v.call.Frames; f.Generation() != v.generation {
		f.Fail(ErrEnded)
	}
	return v.call
}

// liveOrFailed returns the call, and fails if the view has ended. It is for the methods that deferred
// calls may use after a failure.
func (v view[T]) liveOrFailed() *frames.StageCall[T] {
	if f := v.call.Frames; f.Generation() != v.generation && !f.Failed(v.generation) {
		f.Fail(ErrEnded)
	}
	return v.call
}

// Check ends the call and the step with err, unless it is nil.
func (v view[T]) Check(err error) {
	if err != nil {
		v.call.Frames.Fail(err)
	}
}

// checkOnce is Check for a method that also works after a failure: the first failure wins.
func (v view[T]) checkOnce(err error) {
	if f := v.call.Frames; err != nil && !f.Failed(v.generation) {
		f.Fail(err)
	}
}

// refuse ends the call and the step with err and its subject. The runner adds the location.
func (v view[T]) refuse(err error, subject string, args ...any) {
	v.call.Frames.Fail(fmt.Errorf("%w: %s", err, fmt.Sprintf(subject, args...)))
}

// index maps a key to the index of one of the stage's declarations, and rejects a key that is out of
// range.
func (v view[T]) index(noun string, key int, own frames.Range) int {
	i, declared := own.At(key - 1)
	if !declared {
		v.refuse(ErrUndeclared, "%s %d, but the stage declares %d: use the keys of its own Decl", noun, key, own.Count)
	}
	return i
}

// Must returns h if err is nil, and ends the call and the step with err if it is not:
// mb.Must(device.Alloc(...)).
func (v view[T]) Must(h T, err error) T {
	v.Check(err)
	return h
}

// Step returns the number of the step.
func (v view[T]) Step() int64 { return v.liveOrFailed().Frames.Step }

// Seed returns the seed of random draws, which are keyed by it, Step, Index and the operation's name
// (L9). It is the same on all replicas, so they make the same copies of weights.
func (v view[T]) Seed() uint64 { return v.liveOrFailed().Frames.Seed }

// Pass returns why the stage runs (L13), or, in a QUANTIZE, why it will run.
func (v view[T]) Pass() Pass { return v.liveOrFailed().Access.Pass }

// Release releases a reference that the stage owns, such as one to a workspace.
func (v view[T]) Release(h T) {
	_, err := v.liveOrFailed().Frames.Space.Release(h)
	if errors.Is(err, memory.ErrNoPlain) {
		err = fmt.Errorf("%w: Release only handles that you have allocated or retained; the step releases borrowed handles", err)
	}
	v.checkOnce(err)
}
