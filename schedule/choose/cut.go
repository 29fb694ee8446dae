package choose

import "slices"

// cut lengthens an order by repeating a section of it: each rank runs its tasks between two positions
// several more times, with the microbatches advanced by the stride each time.
//
// The positions belong to two entries, which are times at which a microbatch enters the first block. At
// both entries, the number of started tasks of each kind, relative to the number of microbatches that
// entered before, is the same. So each repetition finds the same inputs and the same live bytes as the
// first run of the section, for later microbatches. The longer order is therefore valid and has the same
// peaks as the short one.
type cut struct {
	from, to []int // by rank: positions in its order
	stride   int   // number of microbatches in a repetition
	repeats  int   // in addition to the first run; 0 leaves the order unchanged
	elapsed  int64 // time between the two entries
}

// strides lists the strides that cut tries. They all divide maxStride.
var strides = []int{1, 2, 3, 4, 6, maxStride}

const maxStride = 12

// cut returns the cut with the least time per microbatch that adds the given number of microbatches to
// the order of the latest run. It returns false if no cut is valid.
func (e *evaluator) cut(o order, extra int) (best cut, found bool) {
	if extra == 0 {
		return cut{}, true
	}
	list := e.entries(o)
	for _, stride := range strides {
		if extra%stride != 0 {
			continue
		}
		for mb := 0; mb+stride < e.microbatches; mb++ {
			elapsed := list.times[mb+stride] - list.times[mb]
			if found && elapsed*int64(best.stride) >= best.elapsed*int64(stride) || !slices.Equal(list.started[mb], list.started[mb+stride]) {
				continue
			}
			best, found = cut{list.positions[mb], list.positions[mb+stride], stride, extra / stride, elapsed}, true
		}
	}
	return best, found
}

// entries describes the states in which the microbatches enter the first block, indexed by microbatch.
type entries struct {
	times     []int64
	positions [][]int // by rank: position of its first task that starts at that time or later
	started   [][]int // by task: microbatches that have started it, minus those that entered before
}

// entries returns the entries of the order of the latest run.
func (e *evaluator) entries(o order) entries {
	list := entries{make([]int64, 0, e.microbatches), make([][]int, e.microbatches), make([][]int, e.microbatches)}
	first := e.blocks[0].rank
	for i, t := range o[first] {
		if t == taskOf(0, forward) {
			list.times = append(list.times, e.starts[first][i])
		}
	}
	position, started := make([]int, e.ranks), make([]int, len(e.duration))
	for mb, now := range list.times {
		for rank, tasks := range o {
			for ; position[rank] < len(tasks) && e.starts[rank][position[rank]] < now; position[rank]++ {
				started[tasks[position[rank]]]++
			}
		}
		list.positions[mb], list.started[mb] = slices.Clone(position), slices.Clone(started)
		for t := range started {
			list.started[mb][t] -= mb
		}
	}
	return list
}
