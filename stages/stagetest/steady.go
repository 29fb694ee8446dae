package stagetest

import (
	"context"
	"runtime"
	"slices"
)

// allocations compares the allocations of the stage's calls on the Go heap in steps of two
// sizes (L11).
func (s *suite[T]) allocations(set setting[T]) {
	if !s.cfg.Allocations {
		return
	}
	// The runtime allocates more for goroutines that block on one processor and resume on
	// another.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	var count uint64
	s.with(set, func(x *run[T]) {
		t := x.trial
		t.watch.forgetful = true
		set.visit = func(_ visit[T], run func() error) error {
			runtime.ReadMemStats(&before)
			err := run()
			runtime.ReadMemStats(&after)
			count += after.Mallocs - before.Mallocs
			return err
		}
		y, ok := t.start(set)
		if !ok {
			return
		}
		// Other goroutines can only add allocations, so the stage's count is the minimum over
		// several steps.
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
					least[m] = count // the first try, which fills pools, does not count
				}
			}
		}
		if least[few] != least[many] {
			t.fault(Allocates, "its calls make %d allocations with %d microbatches and %d with %d", least[few], few, least[many], many)
		}
	})
}

// reachable requires that no tensor of a microbatch is reachable once the microbatch has
// retired.
func (s *suite[T]) reachable(set setting[T]) {
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
	t.watch.saved = func(h T, microbatch int) { follow(h, microbatch, "its saved tensor") }
	set.onMake = func(want Want, h T) { follow(h, want.Microbatch, want.Kind.String()) }
	set.onRetire = func(microbatch int) { retired[microbatch] = true; look() }
	set.visit = func(v visit[T], run func() error) error {
		err := run()
		for _, h := range slices.Concat(v.out, v.gradIn) {
			follow(h, v.mb.Index(), "its result")
		}
		return err
	}
	if x, ok := t.start(set); ok {
		if _, err := x.step(context.Background(), several); err != nil {
			x.diagnose(err)
			return
		}
		look()
		runtime.KeepAlive(t.subject) // tensors that the stage keeps stay reachable
	}
}
