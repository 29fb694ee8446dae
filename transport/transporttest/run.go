package transporttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// Subject is a transport under test, with functions for its tensors, each of which contains one
// number. All fields except Capacities, Patience and Kill must be set.
type Subject[T any] struct {
	// New returns the linked endpoints of the ranks, and a function that closes them after the
	// test.
	New func(ranks, capacity int) (ends []transport.Transport[T], end func() error, err error)
	// Capacities lists the capacities that the transport supports; nil means 0, 1, 3 and no limit.
	Capacities []int
	// Patience is the maximum duration of the calls in one step of a test. After that time the suite
	// cancels their context, and waits equally long for them to return. 0 means a minute.
	Patience time.Duration
	// Kill ends a rank as if its process had ended. If it is nil, the suite omits the tests of lost ranks.
	Kill func(end transport.Transport[T])
	// Make returns a tensor of a rank that contains a number, Read returns the number, Write
	// changes it, and Release releases the tensor. They run on the goroutine of the rank.
	Make    func(rank int, value float64) (T, error)
	Read    func(rank int, h T) (float64, error)
	Write   func(rank int, h T, value float64) error
	Release func(rank int, h T) error
}

// Fault is a violation of the contract.
type Fault struct {
	Test     string // the name of the test
	Capacity int    // of the links
	Rank     int    // -1 if the fault belongs to no rank
	Text     string
}

// String describes the fault in one line.
func (f Fault) String() string {
	where := ""
	if f.Rank >= 0 {
		where = fmt.Sprintf(", rank %d", f.Rank)
	}
	return fmt.Sprintf("%s (capacity %d%s): %s", f.Test, f.Capacity, where, f.Text)
}

// Run tests whether a transport fulfills its contract, in several subtests.
func Run[T any](t *testing.T, subject Subject[T]) {
	for _, test := range tests[T]() {
		t.Run(test.name, func(t *testing.T) {
			for _, fault := range subject.check(test) {
				t.Error(fault)
			}
		})
	}
}

// Check is Run without package testing: it returns the faults. To test that a call blocks, the suite waits
// briefly and checks that the call has not returned. Check therefore never reports a fault of a correct
// transport, but it may miss a fault of a slow one.
func Check[T any](subject Subject[T]) []Fault {
	var faults []Fault
	for _, test := range tests[T]() {
		faults = append(faults, subject.check(test)...)
	}
	return faults
}

// test is a test of the contract.
type test[T any] struct {
	name string
	run  func(*suite[T])
}

func tests[T any]() []test[T] {
	return append([]test[T]{
		{"capacity", (*suite[T]).capacities},
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
		{"begin compares hellos", (*suite[T]).hellos},
		{"abort ends every call", (*suite[T]).aborts},
		{"abort forgets what was sent", (*suite[T]).forgets},
		{"a context ends a call", (*suite[T]).cancels},
		{"a step is done on every rank or on none", (*suite[T]).closes},
		{"a rank is lost", (*suite[T]).loses},
	}, windowTests[T]()...)
}

// check runs a test at every capacity, and checks for leaked goroutines.
func (s Subject[T]) check(test test[T]) []Fault {
	capacities := s.Capacities
	if capacities == nil {
		capacities = []int{0, 1, 3, schedule.Unlimited}
	}
	goroutines := runtime.NumGoroutine()
	var faults []Fault
	for _, capacity := range capacities {
		x := &suite[T]{Subject: s, test: test.name, capacity: capacity}
		test.run(x)
		x.close()
		faults = append(faults, x.faults()...)
	}
	for tries := 0; runtime.NumGoroutine() > goroutines; tries++ {
		if tries == 12000 { // a minute
			return append(faults, Fault{test.name, capacities[0], -1, fmt.Sprintf("%d goroutines are left", runtime.NumGoroutine()-goroutines)})
		}
		time.Sleep(5 * time.Millisecond)
	}
	return faults
}

// suite is one test at one capacity.
type suite[T any] struct {
	Subject[T]
	test     string
	capacity int
	ends     []transport.Transport[T]
	end      func() error

	mu    sync.Mutex
	found []Fault
}

// fault reports a fault. rank is -1 if it belongs to no rank.
func (s *suite[T]) fault(rank int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = append(s.found, Fault{s.test, s.capacity, rank, fmt.Sprintf(format, args...)})
}

// faults returns the reported faults.
func (s *suite[T]) faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.found)
}

// link links n new ranks and reports whether it succeeded.
func (s *suite[T]) link(n int) bool {
	s.close()
	var err error
	if s.ends, s.end, err = s.New(n, s.capacity); err != nil || len(s.ends) != n {
		s.fault(-1, "Subject.New for %d ranks returns %d: %v", n, len(s.ends), err)
		s.ends = nil
		return false
	}
	return true
}

// close closes the linked ranks.
func (s *suite[T]) close() {
	if s.end != nil {
		if err := s.end(); err != nil {
			s.fault(-1, "the end of the transport: %v", err)
		}
	}
	s.end = nil
}

// ranks links n new ranks, begins a step, runs f on a goroutine for each of them, and waits for
// all goroutines.
func (s *suite[T]) ranks(n int, f func(rank *rank[T])) {
	if s.link(n) {
		s.step(f)
	}
}

// step is like ranks, but uses the existing links.
func (s *suite[T]) step(f func(rank *rank[T])) {
	s.each(func(r *rank[T]) {
		if r.succeeds(r.endpoint.Begin(r.ctx, nil), "Begin") {
			f(r)
		}
	})
}

// each runs f for each rank, on its own goroutine. It abandons ranks that hang.
func (s *suite[T]) each(f func(rank *rank[T])) {
	patience := s.Patience
	if patience == 0 {
		patience = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all sync.WaitGroup
	for number, end := range s.ends {
		all.Go(func() { f(&rank[T]{endpoint: end, suite: s, number: number, ctx: ctx}) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * patience):
		s.fault(-1, "a call does not return after the end of its context")
		s.end = nil
	}
}

// rank is a rank of a test. Its methods report faults; a bool result is true if the call was correct.
type rank[T any] struct {
	*suite[T]
	endpoint transport.Transport[T]
	number   int
	ctx      context.Context
}

// errorf reports a fault on the rank.
func (r *rank[T]) errorf(format string, args ...any) { r.fault(r.number, format, args...) }

// succeeds reports an unexpected error.
func (r *rank[T]) succeeds(err error, call string) bool {
	if err != nil {
		r.errorf("%s: %v", call, err)
	}
	return err == nil
}

// wraps reports whether err wraps want or, if it comes from another process, contains its text.
func (r *rank[T]) wraps(err, want error, call string) bool {
	if err == nil || !errors.Is(err, want) && !strings.Contains(err.Error(), want.Error()) {
		r.errorf("%s returns %v, want %v", call, err, want)
		return false
	}
	return true
}

// output returns the tag of the outputs of a stage for microbatch m.
func output(m int) transport.Tag { return transport.Tag{Step: 7, Stage: 3, Microbatch: m} }

// gradient returns the tag of the gradients of a stage's inputs for microbatch m.
func gradient(m int) transport.Tag {
	return transport.Tag{Step: 7, Content: transport.Gradient, Stage: 3, Microbatch: m}
}

// send sends a new tensor with the given value and returns the tensor.
func (r *rank[T]) send(to int, tag transport.Tag, value float64) T {
	h, err := r.Make(r.number, value)
	if r.succeeds(err, "Make") {
		r.succeeds(r.endpoint.Send(r.ctx, to, tag, []T{h}), "Send of "+tag.String())
	}
	return h
}

// wait waits for the receipt and releases the tensor.
func (r *rank[T]) wait(to int, tag transport.Tag, h T) {
	if r.succeeds(r.endpoint.Wait(r.ctx, to, tag), "Wait for "+tag.String()) {
		r.succeeds(r.Release(r.number, h), "Release of a sent tensor")
	}
}

// recv receives a tensor, which must have the given value, and releases it.
func (r *rank[T]) recv(from int, tag transport.Tag, value float64) {
	h := make([]T, 1)
	if r.succeeds(r.endpoint.Recv(r.ctx, from, tag, h), "Recv of "+tag.String()) {
		r.hasValue(h[0], value)
		r.succeeds(r.Release(r.number, h[0]), "Release of a received tensor")
	}
}

// hasValue requires that a tensor has a value.
func (r *rank[T]) hasValue(h T, value float64) {
	if got, err := r.Read(r.number, h); r.succeeds(err, "Read") && got != value {
		r.errorf("a tensor holds %v, want %v", got, value)
	}
}

// flag is an event that happens once, on any goroutine.
type flag struct{ atomic.Bool }

// unsetAfterPause lets other goroutines run for a moment, and reports whether the flag is still not
// set.
func (f *flag) unsetAfterPause() bool {
	for range 20 {
		runtime.Gosched()
	}
	time.Sleep(2 * time.Millisecond)
	return !f.Load()
}
