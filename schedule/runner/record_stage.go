package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// way is how a microbatch goes through the stages.
type way uint8

const (
	evaluated way = iota // forward only
	whole                // forward, and B
	split                // forward, I and W where the stage can, else B
)

// trip is one microbatch of one shape on its way through the stages.
type trip[T any] struct {
	*recording[T]
	way     way
	profile []layout.StageProfile
	tapes   []*tape[T] // by stage
}

// pass records one way through all stages.
func (r *recording[T]) pass(ctx context.Context, way way, profile []layout.StageProfile) (err error) {
	t := trip[T]{recording: r, way: way, profile: profile, tapes: make([]*tape[T], len(profile))}
	pass := frames.Train
	if way == evaluated {
		pass = frames.Eval
	}
	for rank, runner := range r.ranks {
		defer r.stop(runner)
		defer runner.frames.Recover(&err)
		r.begin(runner, pass, r.wanted(rank))
		if err := runner.fill(ctx, 0); err != nil {
			return fmt.Errorf("the source of rank %d: %w", rank, err)
		}
	}
	for s := range profile {
		if err := t.quantize(ctx, s); err != nil {
			return t.fault(s, schedule.Quantize, err)
		}
		t.tapes[s] = r.tapeOf(s, &profile[s])
		if err := t.forward(ctx, s); err != nil {
			return t.fault(s, schedule.F, err)
		}
	}
	for s := range slices.Backward(profile) {
		st := &r.at(s).stages[s]
		if t.hasBackward(st) {
			for _, kind := range t.kinds(s) {
				if err := t.backward(ctx, s, kind); err != nil {
					return t.fault(s, kind, err)
				}
			}
		}
		if isProfiled(st.Stage) {
			continue
		}
		if err := t.tapes[s].settled(fmt.Sprintf("stage %d (%s)", s, st.spec.Name)); err != nil {
			return err
		}
	}
	return nil
}

// hasBackward reports whether the stage has a backward on this way.
func (t *trip[T]) hasBackward(st *stage[T]) bool { return t.way != evaluated && st.gradientWanted }

func (t *trip[T]) fault(s int, kind schedule.Kind, err error) error {
	return fmt.Errorf("stage %d (%s) %v: %w", s, t.profile[s].Stage, kind, err)
}

// tapeOf returns a tape for the calls of a stage.
func (r *recording[T]) tapeOf(s int, profile *layout.StageProfile) *tape[T] {
	runner := r.at(s)
	t := r.tape(runner.rank, profile.Buffers)
	maps.Copy(t.tables, r.tables[s])
	for _, read := range runner.stages[s].spec.Reads {
		part := slices.Index(runner.parts, read.Part)
		if h, there := runner.frames.Entered(0, part); there {
			t.lent(layout.PartRead, part, h)
		}
	}
	return t
}

// kinds returns the backward calls of a stage, as a plan has them.
func (t *trip[T]) kinds(s int) []schedule.Kind {
	switch st := &t.at(s).stages[s]; {
	case st.spec.Frozen:
		return []schedule.Kind{schedule.I}
	case t.way == split && st.split != nil:
		return []schedule.Kind{schedule.I, schedule.W}
	}
	return []schedule.Kind{schedule.B}
}

// call returns where the record of a call is.
func (t *trip[T]) call(s int, kind schedule.Kind) **layout.Call {
	profile := &t.profile[s]
	switch {
	case kind == schedule.B:
		return &profile.Whole
	case kind == schedule.I:
		return &profile.Input
	case kind == schedule.W:
		return &profile.Weight
	case t.way == evaluated:
		return &profile.Eval
	}
	return &profile.Forward
}

// record has the stage's worker run a call, f, and ends what the stage has saved for it. The
// worker has put what the call returns where e says.
func (t *trip[T]) record(s int, kind schedule.Kind, last bool, e *effects.Effects, f func() error) error {
	runner, tape, place := t.at(s), t.tapes[s], t.call(s, kind)
	if tape.again = nil; *place != nil {
		tape.again = births(*place)
	}
	made := &layout.Call{}
	err := tape.record(kind.String(), func() error {
		err := f()
		before := len(tape.events)
		if err == nil && (kind != schedule.F || last) {
			err = runner.frames.DropSaved(s, 0, kind, last)
		}
		made.Taken = len(tape.events) - before
		return err
	})
	if err != nil {
		return err
	}
	made.Events, made.Out = tape.events, []layout.Ref{}
	if e.To != effects.None {
		made.Out = tape.handedAll(runner.frames.Placed(e.To, int(e.Stage), 0), 0)
	}
	if *place == nil {
		tape.name(made.Out, runner.frames.Slots(s, 0), func(port int) string {
			if spec := &runner.stages[s].spec; kind == schedule.F {
				return fmt.Sprintf("output %q", spec.Outputs[port].Name)
			} else {
				return fmt.Sprintf("gradient of input %q", spec.Inputs[port].Name)
			}
		})
	} else {
		if err := again(*place, made); err != nil {
			return err
		}
	}
	*place, t.profile[s].Buffers, t.tables[s] = made, tape.buffers, tape.tables
	return nil
}

// births returns the numbers of the buffers that are born in a call.
func births(c *layout.Call) (numbers []int) {
	for _, e := range c.Events {
		if e.Op == layout.Alloc {
			numbers = append(numbers, e.Ref.Index)
		}
	}
	return numbers
}

// again reports whether a call does what it did at first.
func again(first, now *layout.Call) error {
	if first.Taken == now.Taken && slices.Equal(first.Events, now.Events) && slices.Equal(first.Out, now.Out) {
		return nil
	}
	return fmt.Errorf("it does not do the same when it is called again: %d changes of references at first, %d now", len(first.Events), len(now.Events))
}

// handsOver returns the effect of a call that returns something: to the stage beside it, next,
// or if its rank is to get a copy to the outbox. No next stage is -1.
func (t *trip[T]) handsOver(s, next int, place, sent effects.Place) effects.Effects {
	switch {
	case next < 0:
		return effects.Effects{To: effects.Output, Stage: int32(s)}
	case t.copied == nil:
		return effects.Effects{To: place, Stage: int32(next)}
	}
	return effects.Effects{To: sent, Stage: int32(s)}
}

// cross copies what a stage sends into the space of the next stage's rank, so that no two
// stages have the same buffer, and ends it.
func (t *trip[T]) cross(s, next int, e *effects.Effects, to effects.Place, none uint64) error {
	source, target := t.at(s), t.at(next)
	if e.To == to {
		return nil
	}
	handles := source.frames.Placed(e.To, s, 0)
	copies, err := 0, error(nil)
	for ; copies < len(handles) && err == nil; copies++ {
		if none>>copies&1 == 0 {
			handles[copies], err = t.copied(source.rank, target.rank, handles[copies])
		}
	}
	if err != nil {
		copies-- // the last one was not made
	} else {
		err = target.frames.PutAt(to, next, 0, handles, none)
	}
	if err != nil {
		target.giveBack(handles[:copies])
		return err
	}
	return source.frames.DropAt(e.To, s, 0)
}

// forward records F.
func (t *trip[T]) forward(ctx context.Context, s int) error {
	runner := t.at(s)
	st, c, next := &runner.stages[s], runner.frames, s+1
	if st.before >= 0 {
		for i, h := range c.Placed(effects.Input, s, 0) {
			t.tapes[s].lent(layout.In, i, h)
		}
	}
	if st.after < 0 {
		next = -1
	}
	e := t.handsOver(s, next, effects.Input, effects.SentOutput)
	err := t.record(s, schedule.F, !t.hasBackward(st), &e, func() error { return runner.forward(ctx, s, 0, &e) })
	if err == nil && st.before >= 0 {
		err = c.DropAt(effects.Input, s, 0)
	}
	switch {
	case err != nil:
		return err
	case next < 0:
		return c.DropAt(effects.Output, s, 0)
	}
	return t.cross(s, next, &e, effects.Input, 0)
}

// backward records B, I or W.
func (t *trip[T]) backward(ctx context.Context, s int, kind schedule.Kind) error {
	runner := t.at(s)
	st, c := &runner.stages[s], runner.frames
	if kind == schedule.W {
		return t.record(s, kind, true, &effects.Effects{}, func() error { return runner.backwardWeight(ctx, s, 0) })
	}
	if st.after >= 0 {
		for i, h := range c.Placed(effects.Gradient, s, 0) {
			t.tapes[s].lent(layout.GradOut, i, h)
		}
	}
	var e effects.Effects
	if st.wantsGradient {
		e = t.handsOver(s, s-1, effects.Gradient, effects.SentGradient)
	}
	err := t.record(s, kind, kind == schedule.B || st.spec.Frozen, &e, func() error { return runner.backward(ctx, s, 0, kind, &e) })
	if err == nil && st.after >= 0 {
		err = c.DropAt(effects.Gradient, s, 0)
	}
	if err != nil || !st.wantsGradient {
		return err
	}
	return t.cross(s, s-1, &e, effects.Gradient, st.noGradIn)
}
