package choose

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// shop is a step as a job shop: the ranks are its machines, the microbatches its jobs.
// All jobs are alike and take the same way, through the blocks of the model forward
// and back. So none overtakes another, and an order need not name them.
type shop struct {
	ranks, microbatches int
	blocks              []block
	on                  [][]int // blocks by rank, ascending
	split               bool    // the backward runs as two tasks, or else as one

	after []task  // by task: the task that takes its result, -1 if there is none or it is W, whose input stays on its rank
	time  []int64 // by task
	lag   []int64 // by task: from its end until the task after it can have its result
	// bytes are by task those that are live while it runs, and those that stay. By rank spare is the
	// most that a task needs beyond those that stay, and base is always allocated.
	bytes       []change
	spare, base []int64
}

// block is a part of the model that runs on a rank as if it were one stage: the
// stages from first on, up to and without end.
type block struct{ rank, first, end int }

// task is the forward of a block for one microbatch, or a part of its backward.
type task int

const (
	forward  = iota
	backward // I, or B if the backward is not split
	weight   // W
	parts
)

func taskOf(block, part int) task { return task(parts*block + part) }

func (t task) block() int { return int(t) / parts }
func (t task) part() int  { return int(t) % parts }

// change is the change of the bytes on a rank by a task: up while it runs, and net after it.
type change struct{ up, net int64 }

const (
	// maxTasks bounds the tasks of an order that is searched.
	maxTasks = 1 << 19
	// maxSum bounds the sum of the times of a step, and of its bytes.
	maxSum = 1 << 50
)

// newShop returns the shop of some of the microbatches of the step.
func newShop(r *Request, blocks []block, microbatches int, split bool) (*shop, error) {
	tasks := parts * len(blocks)
	if n := tasks * microbatches; n > maxTasks {
		return nil, fmt.Errorf("%w: an order of %d actions is too long to search, there may be %d: use fewer ranks", schedule.ErrParams, n, maxTasks)
	}
	s := &shop{
		ranks: r.Ranks, microbatches: microbatches, blocks: blocks, split: split,
		on: make([][]int, r.Ranks), after: make([]task, tasks), time: make([]int64, tasks), lag: make([]int64, tasks),
		bytes: make([]change, tasks), spare: make([]int64, r.Ranks), base: make([]int64, r.Ranks),
	}
	copy(s.base, r.Costs.Resident)
	p := newPricing(r)
	for b, own := range blocks {
		s.on[own.rank] = append(s.on[own.rank], b)
		p.forward(s, b)
		p.backward(s, b)
	}
	var slowest, largest float64
	for t := range tasks {
		s.after[t] = s.taker(task(t))
		slowest = max(slowest, float64(s.time[t])+float64(s.lag[t]))
		largest = max(largest, float64(s.bytes[t].up))
		rank := blocks[task(t).block()].rank
		s.spare[rank] = max(s.spare[rank], s.bytes[t].up-max(s.bytes[t].net, 0))
	}
	if n := float64(tasks) * float64(r.Microbatches); n*slowest > maxSum || n*largest > maxSum {
		return nil, fmt.Errorf("%w: they are too large for an order of %.0f actions, whose times and bytes must stay below 2^50: choose a longer step of time, or smaller sizes", simulate.ErrCosts, n)
	}
	return s, nil
}

// kinds returns how many tasks a microbatch has in a block.
func (s *shop) kinds() int {
	if s.split {
		return parts
	}
	return parts - 1
}

// length returns how many tasks an order has.
func (s *shop) length() int { return s.kinds() * len(s.blocks) * s.microbatches }

// busy returns how long a rank works for a microbatch.
func (s *shop) busy(rank int) (total int64) {
	for _, b := range s.on[rank] {
		for part := range s.kinds() {
			total += s.time[taskOf(b, part)]
		}
	}
	return total
}

func (s *shop) taker(t task) task {
	switch {
	case t.part() == forward && t.block()+1 == len(s.blocks):
		return t + backward - forward
	case t.part() == forward:
		return t + parts
	case t.part() == backward && t.block() > 0:
		return t - parts
	}
	return -1
}

// crosses reports whether there is a block behind this one, on another rank.
func (s *shop) crosses(b int) bool {
	return b >= 0 && b+1 < len(s.blocks) && s.blocks[b].rank != s.blocks[b+1].rank
}
