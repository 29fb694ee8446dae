package pack

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
)

// batch is a step while it is planned.
type batch struct {
	p     *Packer
	sizes []lengths.Size // by sequence
	work  []float64      // by sequence: its time on the busiest rank
	order []int          // the sequences by work, the largest first
}

func newBatch(p *Packer, sequences []int64) *batch {
	b := &batch{p: p}
	var total lengths.Size
	for _, length := range sequences {
		b.sizes = append(b.sizes, lengths.Of(length))
		total = total.Add(b.sizes[len(b.sizes)-1])
	}
	var busiest lengths.Amount
	for rank := range p.cfg.Params.Placement.Ranks {
		if a := b.rankWork(rank); a.At(total) > busiest.At(total) {
			busiest = a
		}
	}
	busiest.Constant = 0 // the constant belongs to a microbatch, not to a sequence
	for i, size := range b.sizes {
		b.work, b.order = append(b.work, busiest.At(size)), append(b.order, i)
	}
	b.sortByWork(b.order)
	return b
}

// sortByWork sorts sequences, those with the most work first.
func (b *batch) sortByWork(items []int) {
	slices.SortFunc(items, func(i, j int) int { return cmp.Or(cmp.Compare(b.work[j], b.work[i]), cmp.Compare(i, j)) })
}

// rankWork returns the time of a microbatch's computations on a rank.
func (b *batch) rankWork(rank int) (sum lengths.Amount) {
	place := &b.p.cfg.Params.Placement
	for stage, home := range place.Rank {
		if home == rank {
			f, i, w := b.times(stage)
			sum = sum.Add(f).Add(i).Add(w)
		}
	}
	return sum.Scale(1 / float64(max(place.Copies, 1)))
}

// times returns the times of a microbatch on a stage: of its forward, of its backward or I, and of W. If the schedule
// does not split the backward, the time of W is 0.
func (b *batch) times(stage int) (f, i, w lengths.Amount) {
	c := b.p.cfg.Costs.Of(stage)
	amount := func(constant int64, token, square float64) lengths.Amount {
		return lengths.Amount{Constant: float64(constant), Token: token, Square: square}
	}
	t, q := &c.PerToken, &c.PerSquare
	f = amount(c.F, t.F, q.F)
	i, w = amount(c.I, t.I, q.I), amount(c.W, t.W, q.W)
	if whole := amount(c.B, t.B, q.B); b.p.alone.plan.Kinds()[schedule.B] {
		if i, w = i.Add(w), (lengths.Amount{}); whole != w {
			i = whole
		}
	}
	if facts := b.p.alone.plan.StageInfo; facts == nil || facts[stage].Recomputes {
		i = i.Add(amount(c.Recompute, t.Recompute, q.Recompute))
	}
	return f, i, w
}

// deal divides the sequences among the replicas, in order of work, each to the replica that is free first. Replica r
// becomes free at offsets[r] before it has any sequence.
func (b *batch) deal(offsets []float64) [][]int {
	free, dealt := slices.Clone(offsets), make([][]int, len(offsets))
	for _, i := range b.order {
		first := 0
		for r := range free {
			if free[r] < free[first] {
				first = r
			}
		}
		free[first] += b.work[i]
		dealt[first] = append(dealt[first], i)
	}
	return dealt
}

// workOf returns the work of some sequences.
func (b *batch) workOf(items []int) (sum float64) {
	for _, i := range items {
		sum += b.work[i]
	}
	return sum
}

// pack returns the best trial for the sequences of each replica.
func (b *batch) pack(dealt [][]int, shapes []shape) (trials []*trial, err error) {
	for _, items := range dealt {
		t := b.try(items, shapes)
		if t == nil { // the shapes are from another replica
			t = b.try(items, b.survey(items))
		}
		if t == nil {
			return nil, fmt.Errorf("%w: %d sequences do not fit into any number of microbatches", ErrMemory, len(items))
		}
		trials = append(trials, t)
	}
	return trials, nil
}

// slowest returns the trial that exceeds the memory by the most bytes or, if they are equal, has the largest makespan.
// Without trials, it returns an empty one.
func slowest(trials []*trial) (last *trial) {
	last = &trial{}
	for _, t := range trials {
		if last.better(t) {
			last = t
		}
	}
	return last
}

// bound returns a lower bound on the makespan of every packing. At least one replica has no less than an equal part of
// a rank's work. A rank cannot start before a first microbatch has passed the stages before it, and after its last
// backward the gradient passes these stages again. No microbatch is smaller than the smallest sequence. A replica with
// the longest sequence needs the time of its path through all stages.
func (b *batch) bound() int64 {
	p, place := b.p, &b.p.cfg.Params.Placement
	smallest, longest := b.sizes[0], b.sizes[0]
	var total lengths.Size
	for _, size := range b.sizes {
		total = total.Add(size)
		if size.Tokens < smallest.Tokens {
			smallest = size
		}
		longest = lengths.Max(longest, size)
	}
	replicas, packs := float64(p.cfg.Replicas), 1.0
	if p.cfg.Limits.Tokens > 0 {
		packs = max(1, math.Ceil(float64(total.Tokens)/float64(p.cfg.Limits.Tokens))/replicas)
	}
	var bound, path float64
	head, tail := make([]float64, place.Ranks), make([]float64, place.Ranks)
	seen := make([]bool, place.Ranks)
	var before, after float64
	for stage := range place.Depth() {
		f, i, _ := b.times(stage)
		path += f.At(longest) + i.At(longest)
		if rank := place.Rank[stage]; !seen[rank] && place.Copies < 2 {
			seen[rank], head[rank], tail[rank] = true, before, after
		}
		if stage+1 < place.Depth() && place.Rank[stage] != place.Rank[stage+1] {
			hop := float64(p.cfg.Costs.Link(place.Rank[stage], place.Rank[stage+1]).Latency)
			back := float64(p.cfg.Costs.Link(place.Rank[stage+1], place.Rank[stage]).Latency)
			before, after, path = before+hop, after+back, path+hop+back
		}
		before, after = before+f.At(smallest), after+i.At(smallest)
	}
	for rank := range place.Ranks {
		all := b.rankWork(rank)
		work := float64(all.Constant*packs) + (all.At(total)-all.Constant)/replicas
		var later float64 // all W may run after the last I
		for stage, home := range place.Rank {
			if home == rank {
				_, _, w := b.times(stage)
				later += (float64(w.Constant*packs) + (w.At(total)-w.Constant)/replicas) / float64(max(place.Copies, 1))
			}
		}
		bound = max(bound, head[rank]+work, head[rank]+work-later+tail[rank])
	}
	rounding := float64(len(b.sizes) * place.Stages() * 3) // each time is rounded to a tick
	return int64(max(bound-rounding, path-rounding, 0))
}
