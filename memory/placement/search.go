package placement

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// outcome is how a search ended.
type outcome uint8

const (
	gaveUp     outcome = iota // neither, within the limits
	solved                    // there is a layout
	impossible                // there is none
)

// search decides whether a problem has a layout of at most a height, the capacity. It
// visits at most budget nodes, each a buffer put to a place, and returns how many it
// did. As long as ctx does not end, what it returns depends on its arguments alone:
// neither on time nor on the number of processors.
//
// A run goes through all layouts, depth first, and what it finds soon depends on its
// taste. So a run is cut short after some nodes and another one is made with another
// taste, for ever more nodes, as Luby, Sinclair and Zuckerman advise. Runs know nothing
// of each other. They are made side by side, and the first one that decides counts.
func search(ctx context.Context, g *grid, capacity, budget int64, seed uint64) (offsets []int64, o outcome, nodes int64) {
	if g.bound > capacity {
		return nil, impossible, 0
	}
	f := newField(g)
	if f == nil {
		return nil, gaveUp, 0
	}
	t := &tries{ctx: ctx, unit: int64(nodesPerBuffer * len(f.buffers)), left: budget}
	t.first.Store(undecided)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			s := newSearcher(f, capacity)
			for {
				i, limit := t.next()
				if i == undecided {
					return
				}
				o := s.run(tasteOf(i, seed), limit, func() bool { return t.idle(i) })
				t.done(i, s.nodes, o, s.low)
			}
		})
	}
	workers.Wait()
	return t.offsets, t.outcome, t.nodes()
}

// nodesPerBuffer is how many nodes a short run visits for each buffer of the problem. A
// layout that is found without a wrong turn takes one.
const nodesPerBuffer = 2

// tries hands out runs, and keeps what came of the first one that decided.
type tries struct {
	ctx   context.Context
	unit  int64 // nodes of a short run
	first atomic.Int64

	sync.Mutex
	left    int64   // nodes that no run has got
	visited []int64 // nodes, by run
	outcome outcome
	offsets []int64
}

// undecided is the number of the first run that decided while there is none.
const undecided = 1 << 62

// next returns the number of the next run, and how many nodes it may visit.
func (t *tries) next() (i, limit int64) {
	t.Lock()
	defer t.Unlock()
	i = int64(len(t.visited))
	limit = min(t.left, t.unit*luby(i+1))
	if limit <= 0 || t.idle(i) {
		return undecided, 0
	}
	t.left -= limit
	t.visited = append(t.visited, 0)
	return i, limit
}

// idle reports whether a run does not matter any more.
func (t *tries) idle(i int64) bool { return t.first.Load() < i || t.ctx.Err() != nil }

// done takes the outcome of a run.
func (t *tries) done(i, nodes int64, o outcome, offsets []int64) {
	t.Lock()
	defer t.Unlock()
	t.visited[i] = nodes
	if o != gaveUp && i < t.first.Load() {
		t.first.Store(i)
		t.outcome, t.offsets = o, nil
		if o == solved {
			t.offsets = append(t.offsets, offsets...)
		}
	}
}

// nodes returns how many nodes were visited up to the run that decided.
func (t *tries) nodes() (sum int64) {
	for i, n := range t.visited {
		if int64(i) <= t.first.Load() {
			sum += n
		}
	}
	return sum
}

// luby returns number i, from 1, of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 and so on.
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
