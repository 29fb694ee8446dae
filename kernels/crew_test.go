package kernels

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// counted counts how often each part is computed, and how many workers with the same index
// compute at a time.
type counted struct {
	parts   []atomic.Int32
	workers [maxThreads]atomic.Int32
	twice   atomic.Bool
	fail    int
}

func (c *counted) part(i, _ int, w *worker) {
	if c.workers[w.index].Add(1) > 1 {
		c.twice.Store(true)
	}
	c.parts[i].Add(1)
	c.workers[w.index].Add(-1)
	if i == c.fail {
		panic("part fails")
	}
}

// TestCrewComputesEachPartOnce runs many short rounds, so that some helpers start late.
func TestCrewComputesEachPartOnce(t *testing.T) {
	pool, err := NewPool(4)
	require.NoError(t, err)
	defer pool.Close()
	c := newCrew(pool, 0)
	for round := range 3000 {
		task := &counted{parts: make([]atomic.Int32, 1+round%9), fail: -1}
		c.run(task, len(task.parts))
		for i := range task.parts {
			require.EqualValues(t, 1, task.parts[i].Load())
		}
		require.False(t, task.twice.Load(), "a worker in two parts at a time")
	}
}

// A panic reaches the caller after all parts are done, and the crew can be used afterwards.
func TestCrewThrowsPanicsAgain(t *testing.T) {
	pool, err := NewPool(3)
	require.NoError(t, err)
	defer pool.Close()
	c := newCrew(pool, 0)
	for fail := range 6 {
		task := &counted{parts: make([]atomic.Int32, 6), fail: fail}
		require.PanicsWithValue(t, "part fails", func() { c.run(task, 6) })
		for i := range task.parts {
			require.EqualValues(t, 1, task.parts[i].Load())
		}
	}
}
