package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// partition divides the stages into blocks and assigns them to ranks.
type partition struct {
	name   string
	blocks []block
}

// partitions returns the partitions for which to search for orders: one block on each rank, two on each
// rank in a wave, and one block for each stage if all ranks have the same number of stages. If the work
// of stages differs, it adds partitions that balance it, unless ranks have resident bytes, which belong
// to particular stages.
func (r *Request) partitions() []partition {
	var list []partition
	add := func(name string, ranks []int) {
		even := blocks(ranks, r.evenEnds(len(ranks)))
		list = append(list, partition{"searched " + name, even})
		if len(ranks) == r.Stages || len(r.Costs.Resident) > 0 {
			return
		}
		if balanced := blocks(ranks, r.balancedEnds(len(ranks))); r.maxWork(balanced) < r.maxWork(even) {
			list = append(list, partition{"searched balanced " + name, balanced})
		}
	}
	add("chain", schedule.Looped(r.Ranks, r.Ranks).Rank)
	if r.Stages >= 2*r.Ranks {
		add("wave", schedule.Wave(r.Ranks, 2*r.Ranks).Rank)
	}
	if perRank := r.Stages / r.Ranks; perRank > 1 && r.Stages%r.Ranks == 0 {
		add("loop", schedule.Looped(r.Ranks, r.Stages).Rank)
		if perRank > 2 {
			add(fmt.Sprintf("wave of %d", perRank), schedule.Wave(r.Ranks, r.Stages).Rank)
		}
	}
	return list
}

// blocks returns consecutive blocks on the given ranks. Each end is the stage after a block.
func blocks(ranks, ends []int) []block {
	list := make([]block, len(ranks))
	first := 0
	for b, rank := range ranks {
		list[b] = block{rank, first, ends[b]}
		first = ends[b]
	}
	return list
}

// evenEnds returns the ends of n blocks whose numbers of stages differ by at most one.
func (r *Request) evenEnds(n int) []int {
	ends := make([]int, n)
	for b := range ends {
		ends[b] = ((b+1)*r.Stages + n - 1) / n
	}
	return ends
}

// balancedEnds returns the ends of n blocks that minimize the work of the largest block.
func (r *Request) balancedEnds(n int) []int {
	work := r.work()
	low, high := slices.Max(work), int64(0)
	for _, w := range work {
		high += w
	}
	for low < high {
		if middle := low + (high-low)/2; fill(work, n, middle) != nil {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return fill(work, n, high)
}

// fill gives each of n blocks as many stages as the maximum of work allows, but at least one. It returns their ends, or
// nil if stages remain.
func fill(work []int64, n int, maximum int64) []int {
	ends := make([]int, n)
	stage := 0
	for b := range ends {
		sum := work[stage]
		for stage++; stage < len(work)-(n-1-b) && sum+work[stage] <= maximum; stage++ {
			sum += work[stage]
		}
		ends[b] = stage
	}
	if stage < len(work) {
		return nil
	}
	return ends
}

// work returns the time that a microbatch takes in each stage.
func (r *Request) work() []int64 {
	work := make([]int64, r.Stages)
	for s, c := range r.stages() {
		work[s] = c.F + max(c.I+c.W, c.B) + c.Recompute
	}
	return work
}

// maxWork returns the work of the busiest rank.
func (r *Request) maxWork(blocks []block) int64 {
	work, busy := r.work(), make([]int64, r.Ranks)
	for _, b := range blocks {
		for _, w := range work[b.first:b.end] {
			busy[b.rank] += w
		}
	}
	return slices.Max(busy)
}
