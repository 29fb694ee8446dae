package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// outline is a way to place the model for which orders are searched.
type outline struct {
	name   string
	blocks []block
}

// outlines returns the ways to place the stages: a block on every rank, two on a wave,
// and stage by stage if every rank has as many. If stages take unequal times there are also blocks
// with equal shares of the work, unless bytes are resident on ranks, since these belong to certain
// stages.
func (r *Request) outlines() []outline {
	var list []outline
	add := func(name string, ranks []int) {
		plain := blocks(ranks, r.even(len(ranks)))
		list = append(list, outline{"searched " + name, plain})
		if len(ranks) == r.Stages || r.Costs.Resident != nil {
			return
		}
		if balanced := blocks(ranks, r.balanced(len(ranks))); r.heaviest(balanced) < r.heaviest(plain) {
			list = append(list, outline{"searched balanced " + name, balanced})
		}
	}
	add("chain", schedule.Looped(r.Ranks, r.Ranks).Rank)
	if r.Stages >= 2*r.Ranks {
		add("wave", schedule.Wave(r.Ranks, 2*r.Ranks).Rank)
	}
	if turns := r.Stages / r.Ranks; turns > 1 && r.Stages%r.Ranks == 0 {
		add("loop", schedule.Looped(r.Ranks, r.Stages).Rank)
		if turns > 2 {
			add(fmt.Sprintf("wave of %d", turns), schedule.Wave(r.Ranks, r.Stages).Rank)
		}
	}
	return list
}

// blocks returns the blocks that end before these stages, on these ranks.
func blocks(ranks, ends []int) []block {
	list := make([]block, len(ranks))
	first := 0
	for b, rank := range ranks {
		list[b] = block{rank, first, ends[b]}
		first = ends[b]
	}
	return list
}

// even cuts the stages into blocks of as many stages, and returns where each ends.
func (r *Request) even(n int) []int {
	ends := make([]int, n)
	for b := range ends {
		ends[b] = ((b+1)*r.Stages + n - 1) / n
	}
	return ends
}

// balanced cuts the stages into blocks of which the one with most work has as little as
// can be.
func (r *Request) balanced(n int) []int {
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

// fill gives each block in turn as much work as it may have, and a stage at least. It
// returns nil if that is not enough for all.
func fill(work []int64, n int, most int64) []int {
	ends := make([]int, n)
	stage := 0
	for b := range ends {
		sum := work[stage]
		for stage++; stage < len(work)-(n-1-b) && sum+work[stage] <= most; stage++ {
			sum += work[stage]
		}
		ends[b] = stage
	}
	if stage < len(work) {
		return nil
	}
	return ends
}

// work returns by stage the time that a microbatch takes there.
func (r *Request) work() []int64 {
	work := make([]int64, r.Stages)
	for s, c := range r.stages() {
		work[s] = c.F + max(c.I+c.W, c.B) + c.Recompute
	}
	return work
}

// heaviest returns the work of the busiest rank.
func (r *Request) heaviest(blocks []block) int64 {
	work, busy := r.work(), make([]int64, r.Ranks)
	for _, b := range blocks {
		for _, w := range work[b.first:b.end] {
			busy[b.rank] += w
		}
	}
	return slices.Max(busy)
}
