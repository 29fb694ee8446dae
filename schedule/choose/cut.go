package choose

import "slices"

// cut says how an order of some microbatches becomes one of more: on each rank the
// tasks from one place up to another are run some times more, each time with later
// microbatches.
//
// The places are two moments of the step at which just as many tasks of each kind have
// begun, relative to the microbatches that have entered. So whatever the tasks in
// between find the first time they find again, as many microbatches later: the inputs
// that they need, and the bytes that are live. The longer order is as valid as the
// short one and has the same peaks.
type cut struct {
	from, to []int // by rank
	stride   int   // microbatches from one time to the next
	times    int   // more than once; 0 is the order as it is
	elapsed  int64 // time of the step between the two moments
}

// strides are those that are tried, all of them parts of maxStride.
var strides = []int{1, 2, 3, 4, 6, maxStride}

const maxStride = 12

// cut returns the cut of an order that has just been run at which it is fastest for this many more
// microbatches. It reports false if there is none.
func (c *clock) cut(o order, more int) (best cut, found bool) {
	if more == 0 {
		return cut{}, true
	}
	m := c.moments(o)
	for _, stride := range strides {
		if more%stride != 0 {
			continue
		}
		for mb := 0; mb+stride < c.microbatches; mb++ {
			elapsed := m.entered[mb+stride] - m.entered[mb]
			if found && elapsed*int64(best.stride) >= best.elapsed*int64(stride) || !slices.Equal(m.begun[mb], m.begun[mb+stride]) {
				continue
			}
			best, found = cut{m.places[mb], m.places[mb+stride], stride, more / stride, elapsed}, true
		}
	}
	return best, found
}

// moments are those at which each microbatch enters.
type moments struct {
	entered []int64
	places  [][]int // by rank: the first task that has not begun before
	begun   [][]int // by task: how many have, less the microbatches that entered before
}

// moments returns the moments of an order that has just been run.
func (c *clock) moments(o order) moments {
	n := c.microbatches
	m := moments{make([]int64, 0, n), make([][]int, n), make([][]int, n)}
	first := c.blocks[0].rank
	for at, t := range o[first] {
		if t == taskOf(0, forward) {
			m.entered = append(m.entered, c.start[first][at])
		}
	}
	next, begun := make([]int, c.ranks), make([]int, len(c.time))
	for mb, moment := range m.entered {
		for rank, tasks := range o {
			for ; next[rank] < len(tasks) && c.start[rank][next[rank]] < moment; next[rank]++ {
				begun[tasks[next[rank]]]++
			}
		}
		m.places[mb], m.begun[mb] = slices.Clone(next), slices.Clone(begun)
		for t := range begun {
			m.begun[mb][t] -= mb
		}
	}
	return m
}
