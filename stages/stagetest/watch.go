package stagetest

import (
	"errors"
	"reflect"

	"github.com/weir-ml/weir/memory"
)

// errInjected is what an injected failure of the space returns.
var errInjected = errors.New("stagetest: an error made for this test")

// part of the life of a tensor that a message can name.
type role uint8

const (
	asPart role = iota
	asGradient
	asOutput
	asInput
	asSaved
)

// known is a tensor and what it was to the stage.
type known[T any] struct {
	handle     T
	as         role
	what       string
	microbatch int
}

// watch is the subject's space between the runner and the subject. It tells what
// the stage does through the microbatch from what the runner does, and remembers
// what should have been released and was not.
type watch[T any] struct {
	memory.Space[T]
	inCall     bool // the stage under test runs
	microbatch int

	holds  int // of the stage, in this step
	failAt int // the hold of the stage that fails, from 1; 0 for none

	knows          []known[T]
	yielded        int64 // by the last call, if it was Yield
	kept           []T   // released by the runner, and still referenced
	refusedRelease bool  // the stage released what it has no reference to
	refusedHold    bool  // the stage saved what it has no reference to

	forgetful bool                      // remember no tensor: for checks of what is reachable or allocated
	saved     func(h T, microbatch int) // told of what the stage saves; nil is off
}

// reset forgets what an earlier step did.
func (w *watch[T]) reset() {
	*w = watch[T]{Space: w.Space, failAt: w.failAt, forgetful: w.forgetful, saved: w.saved}
}

// note remembers a tensor.
func (w *watch[T]) note(h T, as role, what string) {
	if !w.forgetful {
		w.knows = append(w.knows, known[T]{h, as, what, w.microbatch})
	}
}

// culprit returns what is known about the first tensor that was still referenced when
// the runner released it.
func (w *watch[T]) culprit() (known[T], bool) {
	var best known[T]
	found := false
	if len(w.kept) == 0 {
		return best, false
	}
	for _, k := range w.knows {
		if same(k.handle, w.kept[0]) && (!found || k.as >= best.as) {
			best, found = k, true
		}
	}
	return best, found
}

func (w *watch[T]) Release(h T) (int64, error) {
	freed, err := w.Space.Release(h)
	if w.inCall && errors.Is(err, memory.ErrNoPlain) {
		w.refusedRelease = true
	}
	if !w.inCall && !w.forgetful && freed < w.yielded {
		w.kept = append(w.kept, h)
	}
	w.yielded = 0
	return freed, err
}

func (w *watch[T]) Hold(h T) (int64, error) {
	w.yielded = 0
	if w.inCall {
		w.holds++
		if w.holds == w.failAt {
			return 0, errInjected
		}
	}
	held, err := w.Space.Hold(h)
	if w.inCall {
		if err == nil {
			w.note(h, asSaved, "what it saved")
			if w.saved != nil {
				w.saved(h, w.microbatch)
			}
		} else if errors.Is(err, memory.ErrNoPlain) {
			w.refusedHold = true
		}
	}
	return held, err
}

func (w *watch[T]) Yield(h T) (int64, error) {
	yielded, err := w.Space.Yield(h)
	w.yielded = yielded
	return yielded, err
}

// The forms of a watched space, each with the abilities of the subject's.
type (
	watchBook[T any] struct {
		*watch[T]
		memory.Book
	}
	watchReclaimer[T any] struct {
		*watch[T]
		memory.Reclaimer
	}
	watchBoth[T any] struct {
		*watch[T]
		memory.Book
		memory.Reclaimer
	}
)

// space returns the watch as a space with exactly the abilities of the one it
// watches.
func (w *watch[T]) space() memory.Space[T] {
	book, isBook := w.Space.(memory.Book)
	reclaimer, isReclaimer := w.Space.(memory.Reclaimer)
	switch {
	case isBook && isReclaimer:
		return watchBoth[T]{w, book, reclaimer}
	case isBook:
		return watchBook[T]{w, book}
	case isReclaimer:
		return watchReclaimer[T]{w, reclaimer}
	}
	return w
}

// same reports whether two handles are equal; those that Go cannot compare are
// not.
func same[T any](a, b T) bool {
	x, y := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	return x.Comparable() && y.Comparable() && x.Equal(y)
}

// none reports whether h is the zero T.
func none[T any](h T) bool { return reflect.ValueOf(&h).Elem().IsZero() }
