package stagetest

import (
	"bytes"
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// with opens a subject, starts it in a setting, and calls f.
func (s *suite[T]) with(set setting[T], f func(x *run[T])) {
	t, ok := s.open()
	if !ok {
		return
	}
	defer t.close()
	if x, ok := t.start(set); ok {
		f(x)
	}
}

// agrees runs a step and reports, with the given code, a failure or a difference from want in
// numbers of the given kinds.
func (x *run[T]) agrees(code Code, m int, want numbers, kinds placeKind) {
	got, err := x.step(context.Background(), m)
	x.compare(code, got, err, want, kinds)
}

func (x *run[T]) compare(code Code, got numbers, err error, want numbers, kinds placeKind) {
	switch {
	case err != nil && x.trial.faults == 0:
		x.trial.fault(code, "it succeeds otherwise, but fails here: %v", err)
	case err == nil:
		if what := want.difference(got, kinds); what != "" {
			x.trial.fault(code, "%s differs", what)
		}
	}
}

// train runs one microbatch and several, depth first. It diagnoses the cause of an error; later
// checks compare with the results.
func (s *suite[T]) train() {
	for _, m := range []int{1, several} {
		s.with(setting[T]{name: "depth-first"}, func(x *run[T]) {
			got, err := x.step(context.Background(), m)
			if err != nil {
				x.diagnose(err)
			}
			if m == 1 {
				s.one = got
			} else {
				s.several = got
			}
		})
		if len(s.faults) > 0 {
			return
		}
	}
}

// repeat repeats the same step.
func (s *suite[T]) repeat() {
	s.with(setting[T]{name: "depth-first, once more"}, func(x *run[T]) {
		x.agrees(NotRepeatable, several, s.several, allNumbers)
	})
}

// order runs microbatches in other orders.
func (s *suite[T]) order() {
	for _, set := range []setting[T]{
		{name: "breadth-first", rule: schedule.BreadthFirst},
		{name: "depth-first in groups of 2", group: 2, lookAhead: 1},
		{name: "descending forwards", rule: descending, lookAhead: several}, // it needs the last entry first
	} {
		s.with(set, func(x *run[T]) { x.agrees(OrderMatters, several, s.several, allNumbers) })
	}
}

// evaluate runs forward only, before and after a step, in two orders.
func (s *suite[T]) evaluate() {
	ctx := context.Background()
	s.with(setting[T]{name: "depth-first"}, func(x *run[T]) {
		kinds := outputs | lossValues
		first, err := x.evaluate(ctx, several)
		if err != nil {
			x.diagnose(err)
			return
		}
		if !s.cfg.EvalDiffers {
			x.compare(EvalDiffers, first, nil, s.several, kinds)
		}
		after, err := x.step(ctx, several)
		x.trial.where += " after an evaluation"
		x.compare(EvalDiffers, after, err, s.several, allNumbers)
		// A second runner begins at the first step again, with the same draws.
		if y, ok := x.trial.start(x.setting); ok {
			again, err := y.evaluate(ctx, several)
			x.trial.where += " after a step"
			y.compare(EvalDiffers, again, err, first, kinds)
		}
		s.with(setting[T]{name: "breadth-first", rule: schedule.BreadthFirst}, func(y *run[T]) {
			got, err := y.evaluate(ctx, several)
			y.compare(OrderMatters, got, err, first, kinds)
		})
	})
}

// first runs a step with garbage in the gradients.
func (s *suite[T]) first() {
	s.with(setting[T]{name: "depth-first with garbage in the gradients"}, func(x *run[T]) {
		t := x.trial
		if _, err := x.step(context.Background(), several); err != nil {
			return // already reported by train
		}
		if t.subject.Write != nil && t.subject.Read != nil {
			for i := range t.params {
				if t.params[i].Contributes == batchctx.Frozen {
					continue
				}
				data, err := t.subject.Read(t.params[i].Grad)
				if err == nil {
					// A float32, float16 or bfloat16 with all bits set is a NaN.
					err = t.subject.Write(t.params[i].Grad, bytes.Repeat([]byte{0xff}, len(data)))
				}
				if err != nil {
					s.report(BadConfig, "Subject.Write fails on a gradient: %v", err)
					return
				}
			}
		}
		// A second runner begins at the first step again, with the same draws.
		if y, ok := t.start(x.setting); ok {
			y.agrees(IgnoresFirst, several, s.several, gradients)
		}
	})
}

// add zeroes the gradients before the last microbatch. If this does not change the result, the stage
// overwrites the contributions of earlier microbatches.
func (s *suite[T]) add() {
	var t *trial[T]
	var emptied []int // the gradients that were not zero
	set := setting[T]{name: "depth-first with the gradients emptied before the last microbatch"}
	done := false
	set.onAction = func(action schedule.Action) {
		if action.Microbatch() != several-1 || action.Kind() == schedule.F || done {
			return
		}
		done = true
		for i := range t.params {
			full := t.gradient(i)
			t.empty(i)
			if t.gradient(i) != full {
				emptied = append(emptied, i)
			}
		}
	}
	s.with(set, func(x *run[T]) {
		t = x.trial
		for i := range t.params {
			t.empty(i)
		}
		got, err := x.step(context.Background(), several)
		if err != nil {
			return
		}
		for _, i := range emptied {
			at := tensorKey{gradients, -1, i}
			if got.digests[at] == s.several.digests[at] {
				t.fault(IgnoresAdd, "the gradient of parameter %d (%s) contains only the last microbatch", i, t.params[i].Name)
			}
		}
	})
}

// gradient returns the digest of the gradient of parameter i, or 0 if the parameter is frozen.
func (t *trial[T]) gradient(i int) uint64 {
	if t.params[i].Contributes == batchctx.Frozen {
		return 0
	}
	return t.digest(t.params[i].Grad)
}

func (t *trial[T]) empty(i int) {
	if t.params[i].Contributes != batchctx.Frozen {
		if err := t.subject.Gradients.Zero(t.params[i].Grad); err != nil {
			t.suite.report(BadConfig, "Subject.Gradients.Zero fails: %v", err)
		}
	}
}

// frozenBefore trains the stage after a frozen one, so that gradIn is nil.
func (s *suite[T]) frozenBefore(set setting[T]) {
	set.name += ", nothing before it trains"
	set.frozenFeed = true
	s.with(set, func(x *run[T]) {
		if x.trial.hasFeed() && !x.trial.spec.Frozen {
			x.agrees(GradInUnwanted, several, s.several, outputs|gradients|lossValues)
		}
	})
}

// frozen freezes the stage between stages that train.
func (s *suite[T]) frozen() {
	set := setting[T]{name: "depth-first with its parameters frozen", decorate: stages.Freeze[T]}
	s.with(set, func(x *run[T]) {
		t := x.trial
		if !t.hasFeed() {
			return // no stage before it trains, so it would have no backward
		}
		for i := range t.params {
			t.empty(i)
		}
		var before []uint64
		for i := range t.params {
			before = append(before, t.gradient(i))
		}
		x.agrees(FrozenDiffers, several, s.several, outputs|gradIns|lossValues)
		for i := range t.params {
			if t.gradient(i) != before[i] {
				t.fault(WritesFrozen, "it writes the gradient of parameter %d (%s)", i, t.params[i].Name)
			}
		}
	})
}

// recompute runs the stage under stages.Recompute.
func (s *suite[T]) recompute() {
	for _, set := range []setting[T]{
		{name: "depth-first under Recompute", decorate: stages.Recompute[T]},
		{name: "breadth-first under Recompute", decorate: stages.Recompute[T], rule: schedule.BreadthFirst},
	} {
		s.with(set, func(x *run[T]) { x.agrees(RecomputeDiffers, several, s.several, allNumbers) })
	}
}

// split runs I and W instead of B, if the stage supports it: with each W directly after its I, after the
// next I, and after all I's. It does so with and without stages.Recompute.
func (s *suite[T]) split() {
	if !s.splits {
		return
	}
	for _, set := range []setting[T]{
		{name: "I and W apart"},
		{name: "I and W apart under Recompute", decorate: stages.Recompute[T]},
	} {
		for _, lag := range []int{0, 1, several} {
			set.split, set.lag = true, lag
			s.with(set, func(x *run[T]) { x.agrees(SplitDiffers, several, s.several, allNumbers) })
		}
	}
}
