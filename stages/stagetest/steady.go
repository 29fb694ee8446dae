package stagetest

import (
	"context"
	"runtime"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// outside stands around a stage and runs a function before and after each call.
type outside[T any] struct {
	stages.Stage[T]
	trial  *trial[T]
	before func()
	after  func(microbatch int, returned []T)
}

func (o *outside[T]) Unwrap() stages.Stage[T] { return o.Stage }

func (o *outside[T]) Forward(ctx context.Context, mb batchctx.Microbatch[T], in, out []T) error {
	return o.call(mb, out, func() error { return o.Stage.Forward(ctx, mb, in, out) })
}

func (o *outside[T]) Backward(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return o.call(mb, gradIn, func() error { return o.Stage.Backward(ctx, mb, gradOut, gradIn) })
}

// splitOutside stands around a stage that can split its backward.
type splitOutside[T any] struct {
	*outside[T]
	split stages.SplitBackward[T]
}

func (o *splitOutside[T]) BackwardInput(ctx context.Context, mb batchctx.Microbatch[T], gradOut, gradIn []T) error {
	return o.call(mb, gradIn, func() error { return o.split.BackwardInput(ctx, mb, gradOut, gradIn) })
}

func (o *splitOutside[T]) BackwardWeight(ctx context.Context, mb batchctx.Microbatch[T]) error {
	return o.call(mb, nil, func() error { return o.split.BackwardWeight(ctx, mb) })
}

// wrapped returns it as a stage that can what the one within can.
func (o *outside[T]) wrapped() stages.Stage[T] {
	if split, ok := o.Stage.(stages.SplitBackward[T]); ok {
		return &splitOutside[T]{o, split}
	}
	return o
}

func (o *outside[T]) call(mb batchctx.Microbatch[T], returned []T, run func() error) error {
	o.trial.watch.inCall, o.trial.watch.microbatch = true, mb.Index()
	defer func() { o.trial.watch.inCall = false }()
	o.before()
	err := run()
	o.after(mb.Index(), returned)
	return err
}

// allocations compares what the calls of the stage allocate on the Go heap in
// steps of two sizes (L11).
func (s *suite[T]) allocations() {
	if !s.cfg.Allocations {
		return
	}
	for _, set := range s.ways() {
		s.allocationsIn(set)
	}
}

func (s *suite[T]) allocationsIn(set setting[T]) {
	// The runtime allocates more for goroutines that wait on one processor and go on on another.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	var count uint64
	s.with(set, func(x *run[T]) {
		t := x.trial
		t.watch.forgetful = true
		set.around = func(stage stages.Stage[T]) stages.Stage[T] {
			o := &outside[T]{
				Stage: stage, trial: t,
				before: func() { runtime.ReadMemStats(&before) },
				after: func(int, []T) {
					runtime.ReadMemStats(&after)
					count += after.Mallocs - before.Mallocs
				},
			}
			return o.wrapped()
		}
		y, ok := t.start(set)
		if !ok {
			return
		}
		// Another goroutine can only add, so the least of some steps is the stage's.
		const few, many, tries = 16, 64, 3
		least := map[int]uint64{}
		for try := range tries + 1 {
			for _, m := range []int{few, many} {
				count = 0
				if _, err := y.step(context.Background(), m); err != nil {
					y.diagnose(err)
					return
				}
				if try == 1 || try > 1 && count < least[m] {
					least[m] = count // the first try fills what grows once
				}
			}
		}
		if least[few] != least[many] {
			t.fault(Allocates, "its calls make %d allocations with %d microbatches and %d with %d", least[few], few, least[many], many)
		}
	})
}

// reachable asks that nothing of a microbatch is reachable once the microbatch
// has retired, whoever would keep it.
func (s *suite[T]) reachable() {
	for _, set := range s.ways() {
		s.reachableIn(set)
	}
}

func (s *suite[T]) reachableIn(set setting[T]) {
	t, ok := s.open()
	if !ok {
		return
	}
	defer t.close()
	if t.subject.Weak == nil {
		return
	}
	type trace struct {
		alive      func() bool
		microbatch int
		what       string
	}
	var traces []trace
	follow := func(h T, microbatch int, what string) {
		if !none(h) && !t.resident(h) {
			traces = append(traces, trace{t.subject.Weak(h), microbatch, what})
		}
	}
	retired := map[int]bool{}
	look := func() {
		runtime.GC()
		for _, at := range traces {
			if retired[at.microbatch] && at.alive() {
				t.fault(Reachable, "%s of microbatch %d is reachable after the microbatch has retired", at.what, at.microbatch)
			}
		}
	}
	t.watch.forgetful = true
	t.watch.saved = func(h T, microbatch int) { follow(h, microbatch, "what it saved") }
	set.made = func(want Want, h T) { follow(h, want.Microbatch, want.Kind.String()) }
	set.retired = func(microbatch int) { retired[microbatch] = true; look() }
	set.around = func(stage stages.Stage[T]) stages.Stage[T] {
		o := &outside[T]{Stage: stage, trial: t, before: func() {}, after: func(microbatch int, returned []T) {
			for _, h := range returned {
				follow(h, microbatch, "what it returned")
			}
		}}
		return o.wrapped()
	}
	if x, ok := t.start(set); ok {
		if _, err := x.step(context.Background(), several); err != nil {
			x.diagnose(err)
			return
		}
		look()
		runtime.KeepAlive(t.subject) // whatever the stage keeps, it still keeps
	}
}
