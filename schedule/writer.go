package schedule

import "slices"

// loop calls write with from, from+1, ..., to-1. Each call must write the same actions as the call one
// period earlier, with stride added to the microbatches, because loop writes complete periods only once
// and repeats them.
func (b *Builder) loop(from, to, period, stride int, write func(i int)) {
	if repeat := (to - from) / period; repeat > 1 {
		since := b.Len()
		for i := from; i < from+period; i++ {
			write(i)
		}
		b.Repeat(since, repeat-1, stride)
		from += repeat * period
	}
	for i := from; i < to; i++ {
		write(i)
	}
}

// countingBuilder writes the program of a rank from a sequence of kinds and stages. It numbers the
// microbatches itself, in ascending order: an F, I or W gets the first microbatch for which the stage
// has not run that kind. A B counts as both I and W.
//
// If a rule writes more microbatches than run through a stage, countingBuilder counts the additional
// ones but omits their actions. Thus a rule that requires a minimum number of microbatches can always
// write that many, because a valid order remains valid without its last microbatches.
type countingBuilder struct {
	Builder
	stages []int    // the stages of the rank, in ascending order
	next   []counts // by index in stages
}

// counts holds a stage's next microbatch for F, I and W, and the end of the stage's microbatches.
type counts struct{ f, i, w, end int }

// newCountingBuilder returns the builder for a rank with the given stages, which must be in ascending
// order.
func newCountingBuilder(p Params, stages ...int) *countingBuilder {
	b := &countingBuilder{stages: stages, next: make([]counts, len(stages))}
	for k, stage := range stages {
		lo, hi := p.Placement.span(stage, p.Microbatches)
		b.next[k] = counts{lo, lo, lo, hi}
	}
	return b
}

// counted returns the plan for a rule that writes the program of each rank with a countingBuilder.
func (p Params) counted(name string, write func(b *countingBuilder, rank int)) *Plan {
	programs := make([][]Segment, p.Placement.Ranks)
	for rank, stages := range p.Placement.byRank() {
		b := newCountingBuilder(p, stages...)
		write(b, rank)
		programs[rank] = b.Program()
	}
	return p.plan(name, programs...)
}

// counts returns the counts for an action's stage.
func (b *countingBuilder) counts(a Action) *counts {
	k, _ := slices.BinarySearch(b.stages, a.Stage())
	return &b.next[k]
}

// count returns the next microbatch for an action's kind and stage, and advances that count by n.
func (b *countingBuilder) count(a Action, n int) (mb int) {
	c := b.counts(a)
	switch a.Kind() {
	case F:
		mb, c.f = c.f, c.f+n
	case B:
		mb, c.i, c.w = c.i, c.i+n, c.w+n
	case I:
		mb, c.i = c.i, c.i+n
	case W:
		mb, c.w = c.w, c.w+n
	}
	return mb
}

// write writes a pattern n times. The actions of the pattern must have microbatch 0. If n is more than
// 1, all kinds and stages in the pattern must occur equally often.
func (b *countingBuilder) write(n int, pattern ...Action) {
	if n < 1 || len(pattern) == 0 {
		return
	}
	mbs := make([]int, len(pattern))
	for i, a := range pattern {
		mbs[i] = b.count(a, 1)
	}
	stride := b.count(pattern[0], n-1) - mbs[0]
	whole, partial := n, 0 // the number of complete repeats, and the number of repeats with at least one action
	for i, a := range pattern {
		if i > 0 {
			b.count(a, n-1)
		}
		repeats := min(n, max(0, (b.counts(a).end-mbs[i]+stride-1)/stride))
		whole, partial = min(whole, repeats), max(partial, repeats)
	}
	// The first action of a joined pair has the later microbatch, so it is never left without its partner.
	repeat := func(r int) {
		for i, a := range pattern {
			if mb := mbs[i] + r*stride; mb < b.counts(a).end {
				b.Append(a.Shift(mb))
			}
		}
	}
	b.loop(0, whole, 1, stride, repeat)
	for r := whole; r < partial; r++ {
		repeat(r)
	}
}

// microbatch returns a pattern in which one microbatch runs through ascending stages, kind by kind: through
// the stages in ascending order for F, and in descending order for other kinds.
func microbatch(stages []int, kinds ...Kind) []Action {
	list := make([]Action, 0, len(stages)*len(kinds))
	for _, kind := range kinds {
		for i := range stages {
			if kind != F {
				i = len(stages) - 1 - i
			}
			list = append(list, NewAction(kind, stages[i], 0))
		}
	}
	return list
}
