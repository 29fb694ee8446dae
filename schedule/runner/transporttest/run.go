package transporttest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-ml/weir/schedule/runner"
)

// Subject is a transport under test, and tensors to send: each holds a number. All
// but Capacities must be set.
type Subject[T any] struct {
	// New returns the ends of so many ranks, linked, and has them closed with the test.
	New func(t testing.TB, ranks, capacity int) []runner.Transport[T]
	// Capacities are those that the transport can have; nil is 0, 1, 3 and no bound.
	Capacities []int
	// Make returns a tensor of a rank, Read what it holds; Write changes that, Release
	// ends the tensor. They run on the goroutine of the rank.
	Make    func(rank int, value float64) (T, error)
	Read    func(rank int, h T) (float64, error)
	Write   func(rank int, h T, value float64) error
	Release func(rank int, h T) error
}

// Run runs the suite. Where a call must block the suite looks once, after a moment:
// it never fails a transport that is right, and may miss a fault of one that is slow.
func Run[T any](t *testing.T, subject Subject[T]) {
	capacities := subject.Capacities
	if capacities == nil {
		capacities = []int{0, 1, 3, unlimited}
	}
	goroutines := runtime.NumGoroutine()
	for _, test := range []struct {
		name string
		run  func(*suite[T])
	}{
		{"capacity is told", (*suite[T]).capacityIsTold},
		{"messages keep their order", (*suite[T]).order},
		{"several tensors and none", (*suite[T]).tensors},
		{"data is copied", (*suite[T]).copies},
		{"send blocks while the link is full", (*suite[T]).full},
		{"wait blocks until the receipt", (*suite[T]).waits},
		{"tags are verified", (*suite[T]).tags},
		{"links are apart", (*suite[T]).apart},
		{"traffic", (*suite[T]).traffic},
		{"exchange", (*suite[T]).exchange},
		{"begin waits for all", (*suite[T]).begins},
		{"abort ends every call", (*suite[T]).aborts},
		{"abort forgets what was sent", (*suite[T]).forgets},
		{"a context ends a call", (*suite[T]).cancels},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, capacity := range capacities {
				test.run(&suite[T]{Subject: subject, t: t, capacity: capacity})
			}
		})
	}
	t.Run("no goroutine is left", func(t *testing.T) {
		for range 200 {
			if runtime.NumGoroutine() <= goroutines+1 { // this test's own
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines, %d before the suite", runtime.NumGoroutine(), goroutines)
	})
}

// unlimited is schedule.Unlimited.
const unlimited = -1

// suite is one test at one capacity.
type suite[T any] struct {
	Subject[T]
	t        *testing.T
	capacity int
	ends     []runner.Transport[T]
}

// patience is how long a call may take that must not block. It only turns a hang into
// a failure.
const patience = 20 * time.Second

// ranks runs a function on a goroutine for each of so many ranks, linked anew, after
// the beginning of a step, and waits for all of them.
func (s *suite[T]) ranks(n int, f func(rank *rank[T])) {
	s.t.Helper()
	s.ends = s.New(s.t, n, s.capacity)
	s.step(f)
}

// step does so over the links that are there.
func (s *suite[T]) step(f func(rank *rank[T])) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	for number, end := range s.ends {
		all.Add(1)
		go func() {
			defer all.Done()
			r := &rank[T]{Transport: end, suite: s, number: number, ctx: ctx}
			if r.no(end.Begin(ctx), "Begin") {
				f(r)
			}
		}()
	}
	all.Wait()
}

// rank is a rank within a test. Its methods report faults with the capacity and the
// rank, and whether all was well.
type rank[T any] struct {
	runner.Transport[T]
	*suite[T]
	number int
	ctx    context.Context
}

// errorf reports a fault.
func (r *rank[T]) errorf(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("capacity %d, rank %d: "+format, append([]any{r.capacity, r.number}, args...)...)
}

// no reports an error that must not be.
func (r *rank[T]) no(err error, call string) bool {
	r.t.Helper()
	if err != nil {
		r.errorf("%s: %v", call, err)
	}
	return err == nil
}

// is reports whether an error is the one that it must be: itself or, from another
// process, one with its text.
func (r *rank[T]) is(err, want error, call string) bool {
	r.t.Helper()
	if err == nil || !errors.Is(err, want) && !strings.Contains(err.Error(), want.Error()) {
		r.errorf("%s returns %v, want %v", call, err, want)
		return false
	}
	return true
}

// output names the outputs of a stage for microbatch m.
func output(m int) runner.Tag { return runner.Tag{Step: 7, Stage: 3, Microbatch: m} }

// gradient names the gradients of a stage's inputs for microbatch m.
func gradient(m int) runner.Tag {
	return runner.Tag{Step: 7, Content: runner.Gradient, Stage: 3, Microbatch: m}
}

// send sends a tensor of this value and returns it.
func (r *rank[T]) send(to int, tag runner.Tag, value float64) T {
	r.t.Helper()
	h, err := r.Make(r.number, value)
	if r.no(err, "Make") {
		r.no(r.Send(r.ctx, to, tag, []T{h}), "Send of "+tag.String())
	}
	return h
}

// wait waits for the receipt and ends the tensor.
func (r *rank[T]) wait(to int, tag runner.Tag, h T) {
	r.t.Helper()
	if r.no(r.Wait(r.ctx, to, tag), "Wait for "+tag.String()) {
		r.no(r.Release(r.number, h), "Release of what was sent")
	}
}

// recv receives a tensor, which must hold this value, and ends it.
func (r *rank[T]) recv(from int, tag runner.Tag, value float64) {
	r.t.Helper()
	h := make([]T, 1)
	if r.no(r.Recv(r.ctx, from, tag, h), "Recv of "+tag.String()) {
		r.holds(h[0], value)
		r.no(r.Release(r.number, h[0]), "Release of what was received")
	}
}

// holds demands that a tensor holds a value.
func (r *rank[T]) holds(h T, value float64) {
	r.t.Helper()
	if got, err := r.Read(r.number, h); r.no(err, "Read") && got != value {
		r.errorf("a tensor holds %v, want %v", got, value)
	}
}

// flag is something that happens once, on some goroutine.
type flag struct{ atomic.Bool }

// notYet gives others a moment and reports whether the flag is still down.
func (f *flag) notYet() bool {
	for range 20 {
		runtime.Gosched()
	}
	time.Sleep(2 * time.Millisecond)
	return !f.Load()
}
