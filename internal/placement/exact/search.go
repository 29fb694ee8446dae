package exact

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// outcome is the result of a search.
type outcome uint8

const (
	gaveUp     outcome = iota // undecided within the limits
	solved                    // a layout exists
	impossible                // no layout exists
)

// search decides whether a problem has a layout of at most a given height, the capacity. It spends at
// most budget nodes of about a microsecond each, and returns the number spent. Unless ctx ends, its
// result depends only on its arguments, not on time or on the number of processors.
//
// A run searches all layouts depth first, and how soon it finds one depends on its preference. So a run is
// aborted after some work, and another one is started with a different preference. The limits increase as Luby,
// Sinclair and Zuckerman propose. Runs are independent of each other, so they run in parallel. Of the runs that
// decide, the one with the lowest number counts.
func (f *field) search(ctx context.Context, capacity, budget int64, seed uint64) (offsets []int64, o outcome, nodes int64) {
	t := &tries{ctx: ctx, seed: seed, left: min(budget, noLimit/cellsPerNode) * cellsPerNode}
	t.first.Store(undecided)
	one := newSearcher(f, capacity)
	if t.measure(one) {
		var workers sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), maxWorkers) - 1 {
			workers.Go(func() {
				for s := newSearcher(f, capacity); t.try(s); {
				}
			})
		}
		for t.try(one) {
		}
		workers.Wait()
	}
	return t.offsets, t.outcome, t.nodes()
}

const (
	turnsPerBuffer = 2  // number of placements per buffer in the first run
	cellsPerNode   = 32 // number of cells visited in about a microsecond
	maxWorkers     = 8
)

// tries distributes runs, and keeps the result of the first one that decided.
type tries struct {
	ctx   context.Context
	seed  uint64
	unit  int64        // limit of a short run, in cells
	first atomic.Int64 // the first run that decided

	sync.Mutex
	left    int64   // cells not yet assigned to a run
	spent   []int64 // cells, by run
	outcome outcome
	offsets []int64
}

// undecided is the value of tries.first while no run has decided.
const undecided = 1 << 62

// measure makes the first run, which is often the only one. It ends when each buffer could have
// been placed twice, and its work becomes the limit of a short run. measure reports whether the
// search continues.
func (t *tries) measure(s *searcher) bool {
	s.turns = turnsPerBuffer * len(s.buffers)
	o := s.run(preferenceOf(0, t.seed), t.left, func() bool { return t.idle(0) })
	s.turns = math.MaxInt
	t.unit = s.cells
	t.left -= s.cells
	t.spent = append(t.spent, 0)
	t.done(0, s, o)
	return o == gaveUp
}

// try makes the next run, and reports whether there was one that still matters.
func (t *tries) try(s *searcher) bool {
	i, limit := t.next()
	if limit == 0 {
		return false
	}
	o := s.run(preferenceOf(i, t.seed), limit, func() bool { return t.idle(i) })
	t.done(i, s, o)
	return true
}

// next returns the number of the next run, and its limit in cells, which is 0 if there are no
// more runs.
func (t *tries) next() (i, limit int64) {
	t.Lock()
	defer t.Unlock()
	i = int64(len(t.spent))
	if t.idle(i) {
		return i, 0
	}
	if limit = max(0, min(t.left, t.unit*luby(i))); limit > 0 {
		t.left -= limit
		t.spent = append(t.spent, 0)
	}
	return i, limit
}

// idle reports whether a run no longer matters.
func (t *tries) idle(i int64) bool { return t.first.Load() < i || t.ctx.Err() != nil }

// done records the outcome of a run.
func (t *tries) done(i int64, s *searcher, o outcome) {
	t.Lock()
	defer t.Unlock()
	t.spent[i] = s.cells
	if o != gaveUp && i < t.first.Load() {
		t.first.Store(i)
		t.outcome, t.offsets = o, nil
		if o == solved {
			t.offsets = append(t.offsets, s.low...)
		}
	}
}

// nodes returns the nodes spent up to the run that decided.
func (t *tries) nodes() int64 {
	var cells int64
	for i, n := range t.spent {
		if int64(i) <= t.first.Load() {
			cells += n
		}
	}
	return (cells + cellsPerNode - 1) / cellsPerNode
}

// luby returns element i, counted from 1, of the sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 and so on.
func luby(i int64) int64 {
	for power := int64(2); ; power *= 2 {
		switch {
		case i == power-1:
			return power / 2
		case i < power-1:
			i -= power/2 - 1
			power = 1
		}
	}
}
