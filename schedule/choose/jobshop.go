package choose

import (
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// jobShop describes a step as a job-shop problem: ranks are the machines and microbatches the jobs. All
// jobs are identical and visit the blocks of the model in the same order, forward and then backward. So no job needs to
// overtake another, and an order does not name the jobs.
type jobShop struct {
	ranks, microbatches int
	blocks              []block
	blocksOn            [][]int // by rank, ascending
	split               bool    // the backward runs as two tasks, I and W

	successor []task  // by task: the task that reads its result, or -1 if none does or only W does, whose input stays on its rank
	duration  []int64 // by task
	lag       []int64 // by task: from its end until its result arrives at the successor

	bytes     []memoryChange // by task
	resident  []int64        // by rank: bytes that are always allocated
	workspace []int64        // by rank: the largest excess of a task's peak over the bytes that it leaves allocated
}

// block is a range of stages, from first up to but not including end, that runs on a rank as if it
// were one stage.
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

// memoryChange is the effect of a task on the live bytes of its rank, relative to its start: the
// peak while it runs, and the net change by its end.
type memoryChange struct{ peak, net int64 }

const (
	// maxTasks is the largest number of tasks in a searched order.
	maxTasks = 1 << 19
	// maxSum bounds the sum of a step's times, and the sum of its bytes.
	maxSum = 1 << 50
)

// newJobShop returns the job shop for the given number of microbatches of the step.
func newJobShop(r *Request, blocks []block, microbatches int, split bool) (*jobShop, error) {
	tasks := parts * len(blocks)
	if n := tasks * microbatches; n > maxTasks {
		return nil, diagnostic.Errorf(schedule.ErrParams, "an order of %d actions is too long to search, the limit is %d: use fewer ranks", n, maxTasks)
	}
	s := &jobShop{
		ranks: r.Ranks, microbatches: microbatches, blocks: blocks, split: split,
		blocksOn: make([][]int, r.Ranks), successor: make([]task, tasks), duration: make([]int64, tasks), lag: make([]int64, tasks),
		bytes: make([]memoryChange, tasks), workspace: make([]int64, r.Ranks), resident: make([]int64, r.Ranks),
	}
	copy(s.resident, r.Costs.Resident)
	p := newPricing(r)
	for b, block := range blocks {
		s.blocksOn[block.rank] = append(s.blocksOn[block.rank], b)
		p.forward(s, b)
		p.backward(s, b)
	}
	var slowest, largest float64
	for i := range tasks {
		t := task(i)
		switch {
		case t.part() == forward && t.block()+1 == len(blocks):
			s.successor[t] = taskOf(t.block(), backward)
		case t.part() == forward:
			s.successor[t] = t + parts
		case t.part() == backward && t.block() > 0:
			s.successor[t] = t - parts
		default:
			s.successor[t] = -1
		}
		slowest = max(slowest, float64(s.duration[t])+float64(s.lag[t]))
		largest = max(largest, float64(s.bytes[t].peak))
		rank := blocks[t.block()].rank
		s.workspace[rank] = max(s.workspace[rank], s.bytes[t].peak-max(s.bytes[t].net, 0))
	}
	if n := float64(tasks) * float64(r.Microbatches); n*slowest > maxSum || n*largest > maxSum {
		return nil, diagnostic.Errorf(simulate.ErrCosts, "they are too large for an order of %.0f actions, whose times and bytes must stay below 2^50: choose a longer step of time, or smaller sizes", n)
	}
	return s, nil
}

// parts returns the number of tasks per microbatch in a block.
func (s *jobShop) parts() int {
	if s.split {
		return parts
	}
	return parts - 1
}

// tasks returns the number of tasks in an order.
func (s *jobShop) tasks() int { return s.parts() * len(s.blocks) * s.microbatches }

// work returns a rank's computation time for a microbatch.
func (s *jobShop) work(rank int) (total int64) {
	for _, b := range s.blocksOn[rank] {
		for part := range s.parts() {
			total += s.duration[taskOf(b, part)]
		}
	}
	return total
}

// sends reports whether a block has a successor on another rank.
func (s *jobShop) sends(b int) bool {
	return b >= 0 && b+1 < len(s.blocks) && s.blocks[b].rank != s.blocks[b+1].rank
}
