package stagetest

import (
	"errors"
	"reflect"

	"github.com/weir-ml/weir/memory"
)

// errInjected is the error of an injected failure of the space.
var errInjected = errors.New("stagetest: an error made for this test")

// role is the role of a tensor for the stage, for messages.
type role uint8

const (
	asPart role = iota
	asGradient
	asOutput
	asInput
	asSaved
)

// record is a tensor with its role for the stage.
type record[T any] struct {
	handle     T
	role       role
	name       string
	microbatch int
}

// watch is a space between the runner and the subject's space. It distinguishes calls that the
// stage makes through the microbatch from calls of the runner, and records the buffers that the
// runner releases while references remain.
type watch[T any] struct {
	memory.Space[T]
	inCall     bool // the stage under test is running
	microbatch int

	holds  int // number of holds by the stage in this step
	failAt int // which of these holds fails, from 1; 0 means none

	records        []record[T]
	unheld         int64 // bytes, by the last call if it was Unhold
	kept           []T   // released by the runner, and still referenced
	refusedRelease bool  // the stage released a buffer without having a reference
	refusedHold    bool  // the stage saved a buffer without having a reference

	forgetful bool                      // records no tensor, for checks of reachability and allocations
	saved     func(h T, microbatch int) // called for every saved tensor; may be nil
}

// reset discards the records of an earlier step.
func (w *watch[T]) reset() {
	*w = watch[T]{Space: w.Space, failAt: w.failAt, forgetful: w.forgetful, saved: w.saved}
}

// note records a tensor.
func (w *watch[T]) note(h T, as role, what string) {
	if !w.forgetful {
		w.records = append(w.records, record[T]{h, as, what, w.microbatch})
	}
}

// culprit returns the record of the first tensor that was still referenced when the runner released
// it, and whether there is one.
func (w *watch[T]) culprit() (record[T], bool) {
	var best record[T]
	found := false
	if len(w.kept) == 0 {
		return best, false
	}
	for _, k := range w.records {
		if same(k.handle, w.kept[0]) && (!found || k.role >= best.role) {
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
	if !w.inCall && !w.forgetful && freed < w.unheld {
		w.kept = append(w.kept, h)
	}
	w.unheld = 0
	return freed, err
}

func (w *watch[T]) Hold(h T) (int64, error) {
	w.unheld = 0
	if w.inCall {
		w.holds++
		if w.holds == w.failAt {
			return 0, errInjected
		}
	}
	held, err := w.Space.Hold(h)
	if w.inCall {
		if err == nil {
			w.note(h, asSaved, "its saved tensor")
			if w.saved != nil {
				w.saved(h, w.microbatch)
			}
		} else if errors.Is(err, memory.ErrNoPlain) {
			w.refusedHold = true
		}
	}
	return held, err
}

func (w *watch[T]) Unhold(h T) (int64, error) {
	unheld, err := w.Space.Unhold(h)
	w.unheld = unheld
	return unheld, err
}

// The kinds of watched spaces, each with the optional interfaces of the subject's space.
type (
	watchBook[T any] struct {
		*watch[T]
		book memory.Book
	}
	watchReclaimer[T any] struct {
		*watch[T]
		reclaimer memory.Reclaimer
	}
	watchBoth[T any] struct {
		*watch[T]
		book      memory.Book
		reclaimer memory.Reclaimer
	}
)

func (w watchBook[T]) Live() int64           { return w.book.Live() }
func (w watchBook[T]) Stats(s *memory.Stats) { w.book.Stats(s) }
func (w watchBook[T]) ResetPeak()            { w.book.ResetPeak() }

func (w watchReclaimer[T]) Mark() uint64              { return w.reclaimer.Mark() }
func (w watchReclaimer[T]) Reclaim(mark uint64) int64 { return w.reclaimer.Reclaim(mark) }

func (w watchBoth[T]) Live() int64               { return w.book.Live() }
func (w watchBoth[T]) Stats(s *memory.Stats)     { w.book.Stats(s) }
func (w watchBoth[T]) ResetPeak()                { w.book.ResetPeak() }
func (w watchBoth[T]) Mark() uint64              { return w.reclaimer.Mark() }
func (w watchBoth[T]) Reclaim(mark uint64) int64 { return w.reclaimer.Reclaim(mark) }

// space returns the watch as a space that implements exactly the optional interfaces of the
// subject's space.
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

// same reports whether two handles are equal; handles that are not comparable in Go are not.
func same[T any](a, b T) bool {
	x, y := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	return x.Comparable() && y.Comparable() && x.Equal(y)
}

// none reports whether h is the zero T.
func none[T any](h T) bool { return reflect.ValueOf(&h).Elem().IsZero() }
