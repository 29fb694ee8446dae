package schedule

import "slices"

// tape writes the program of a rank from what a rule says: which kinds and stages
// come next. It counts the microbatches itself, ascending: an F, I or W is of the
// first microbatch that its stage has not run it for, and a B is I and W at once.
//
// Microbatches beyond those that run through a stage are counted and left out. So a
// rule that needs a least number of them may count up to it: what is left of an
// order that works is an order that works.
type tape struct {
	Builder
	stages []int    // of the rank, ascending
	next   []counts // by place in stages
}

// counts are the next microbatches of a stage, and the end of those that it runs.
type counts struct{ f, i, w, end int }

// newTape returns the tape of a rank that runs these stages, ascending.
func newTape(p Params, stages ...int) *tape {
	t := &tape{stages: stages, next: make([]counts, len(stages))}
	for k, stage := range stages {
		lo, hi := p.Placement.span(stage, p.Microbatches)
		t.next[k] = counts{lo, lo, lo, hi}
	}
	return t
}

// of returns the counts of a step's stage.
func (t *tape) of(step Action) *counts {
	k, _ := slices.BinarySearch(t.stages, step.Stage())
	return &t.next[k]
}

// take returns the next microbatch of a step and counts n of them.
func (t *tape) take(step Action, n int) (mb int) {
	c := t.of(step)
	switch step.Kind() {
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

// times writes the steps n times over. A step is an action of microbatch 0. If n is
// more than 1, every kind and stage stands equally often among the steps.
func (t *tape) times(n int, steps ...Action) {
	if n < 1 || len(steps) == 0 {
		return
	}
	mbs := make([]int, len(steps))
	for i, step := range steps {
		mbs[i] = t.take(step, 1)
	}
	stride := t.take(steps[0], n-1) - mbs[0]
	whole := n // the repeats that lack no microbatch
	for i, step := range steps {
		if i > 0 {
			t.take(step, n-1)
		}
		whole = min(whole, max(0, (t.of(step).end-mbs[i]+stride-1)/stride))
	}

	if whole > 0 {
		since := t.Len()
		t.once(steps, mbs, 0)
		t.Repeat(since, whole-1, stride)
	}
	for ; whole < n && t.once(steps, mbs, whole*stride); whole++ {
	}
}

// once writes the steps as actions, each of its microbatch plus the shift, without those
// of microbatches that there are not, and reports whether any was left. In a joined pair
// the first one is of the later microbatch, so it never stays behind alone.
func (t *tape) once(steps []Action, mbs []int, shift int) (wrote bool) {
	for i, step := range steps {
		if mb := mbs[i] + shift; mb < t.of(step).end {
			t.Append(step.Shift(mb))
			wrote = true
		}
	}
	return wrote
}
