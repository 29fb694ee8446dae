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
	trial, ok := s.open()
	if !ok {
		return
	}
	defer trial.close()
	trial.watch.forgetful = true
	var before, after runtime.MemStats
	var count uint64
	set.visit = func(_ visit[T], call func() error) error {
		runtime.ReadMemStats(&before)
		err := call()
		runtime.ReadMemStats(&after)
		count += after.Mallocs - before.Mallocs
		return err
	}
	run, ok := trial.start(set)
	if !ok {
		return
	}
	const few, many = 16, 64
	least, err := leastAllocations(run, &count, few, many)
	if err != nil {
		run.diagnose(err)
	} else if least[few] != least[many] {
		trial.fault(Allocates, "its calls make %d allocations with %d microbatches and %d with %d", least[few], few, least[many], many)
	}
}

// leastAllocations returns the minimum of count, which the calls of a step increase, over several steps of each
// size. Other goroutines can only add allocations, so the minimum is the stage's own count.
func leastAllocations[T any](run *run[T], count *uint64, sizes ...int) (map[int]uint64, error) {
	const tries = 3
	least := map[int]uint64{}
	for try := range tries + 1 {
		for _, m := range sizes {
			*count = 0
			if _, err := run.step(context.Background(), m); err != nil {
				return nil, err
			}
			if try == 1 || try > 1 && *count < least[m] {
				least[m] = *count // the first try, which fills pools, does not count
			}
		}
	}
	return least, nil
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
	set.onRetire = func(microbatch int) {
		retired[microbatch] = true
		look()
	}
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
