package profile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
)

// mode says which calls of the stages a pass makes.
type mode uint8

const (
	evaluation mode = iota // forward only
	whole                  // forward, and B
	split                  // forward, I and W if the stage can split its backward, else B
)

// pass is one microbatch of one shape, which goes through all stages.
type pass[T any] struct {
	*Recorder[T]
	mode    mode
	profile []layout.StageProfile
	stages  []*recording[T]
}

// pass records the calls of all stages in a mode.
func (r *Recorder[T]) pass(ctx context.Context, mode mode, profile []layout.StageProfile) (err error) {
	p := pass[T]{r, mode, profile, make([]*recording[T], len(profile))}
	kind := frames.Train
	if mode == evaluation {
		kind = frames.Eval
	}
	for _, rank := range r.Ranks {
		defer r.stop(rank)
		defer rank.Frames.Recover(&err)
		r.begin(rank, kind, r.wanted(rank.Rank))
		if err := rank.Fill(ctx, 0); err != nil {
			return fmt.Errorf("the source of rank %d: %w", rank.Rank, err)
		}
	}
	for s := range profile {
		if err := p.quantize(ctx, s); err != nil {
			return p.fault(s, schedule.Quantize, err)
		}
		p.stages[s] = p.recordStage(s)
		if err := p.forward(ctx, s); err != nil {
			return p.fault(s, schedule.F, err)
		}
	}
	for s := range slices.Backward(profile) {
		st := &r.at(s).Stages[s]
		if p.hasBackward(st) {
			for _, kind := range p.backwardKinds(st) {
				if err := p.backward(ctx, s, kind); err != nil {
					return p.fault(s, kind, err)
				}
			}
		}
		if isProfiled(st.Stage) {
			continue
		}
		if err := p.stages[s].checkEnds(fmt.Sprintf("stage %d (%s)", s, st.Spec.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass[T]) fault(s int, kind schedule.Kind, err error) error {
	return fmt.Errorf("stage %d (%s) %v: %w", s, p.profile[s].Stage, kind, err)
}

// hasBackward reports whether the pass has a backward of the stage.
func (p *pass[T]) hasBackward(st *calls.Stage[T]) bool {
	return p.mode != evaluation && st.GradientWanted
}

// backwardKinds returns the backward calls of a stage, as a plan has them.
func (p *pass[T]) backwardKinds(st *calls.Stage[T]) []schedule.Kind {
	switch {
	case st.Spec.Frozen:
		return []schedule.Kind{schedule.I}
	case p.mode == split && st.Split != nil:
		return []schedule.Kind{schedule.I, schedule.W}
	}
	return []schedule.Kind{schedule.B}
}

// recordStage returns a recording for the calls of a stage, to which the parts of the entry are
// lent.
func (p *pass[T]) recordStage(s int) *recording[T] {
	rank := p.at(s)
	rec := p.record(rank, p.profile[s].Buffers)
	maps.Copy(rec.residents, p.residents[s])
	for _, read := range rank.Stages[s].Spec.Reads {
		part := slices.Index(rank.Parts, read.Part)
		if h, there := rank.Frames.Entered(0, part); there {
			rec.lend(layout.PartRead, part, h)
		}
	}
	return rec
}

// quantize records QUANTIZE. The copies of weights stay in the frames, where the calls of the
// stage find them until the pass is over.
func (p *pass[T]) quantize(ctx context.Context, s int) error {
	rank := p.at(s)
	st := &rank.Stages[s]
	if st.Quantizer == nil {
		return nil
	}
	place, backward := &p.profile[s].QuantizeEval, p.hasBackward(st)
	if backward {
		place = &p.profile[s].Quantize
	}
	rec := p.recordStage(s)
	rec.again = births(*place)
	if err := rec.call(schedule.Quantize.String(), func() error { return rank.Quantize(ctx, s, backward) }); err != nil {
		return err
	}
	made := &layout.Call{Events: rec.events}
	var names []string
	rank.Frames.Copies(s, func(w batchctx.WeightCopy, h T) {
		made.Out = append(made.Out, rec.handedOver(h))
		names = append(names, w.String())
		if w.At == batchctx.AtForward {
			made.Forward++
		}
	})
	if err := rec.checkEnds(fmt.Sprintf("stage %d (%s)", s, st.Spec.Name)); err != nil {
		return err
	}
	return p.keep(s, rec, place, made, func(i int) string { return names[i] })
}

// stage records a call of a stage, f, and the end of the saved state that the call takes. The
// call has put its results in the place in e.
func (p *pass[T]) stage(s int, kind schedule.Kind, last bool, e *effects.Effects, f func() error) error {
	rank, rec, place := p.at(s), p.stages[s], p.place(s, kind)
	rec.again = births(*place)
	made := &layout.Call{}
	err := rec.call(kind.String(), func() error {
		err := f()
		before := len(rec.events)
		if err == nil && (kind != schedule.F || last) {
			err = rank.Frames.DropSaved(s, 0, kind, last)
		}
		made.Taken = len(rec.events) - before
		return err
	})
	if err != nil {
		return err
	}
	made.Events, made.Out = rec.events, []layout.Ref{}
	if e.To != effects.None {
		made.Out = rec.allHandedOver(rank.Frames.Placed(e.To, int(e.Stage), 0))
	}
	return p.keep(s, rec, place, made, func(port int) string {
		spec := &rank.Stages[s].Spec
		if kind == schedule.F {
			return fmt.Sprintf("output %q", spec.Outputs[port].Name)
		}
		return fmt.Sprintf("gradient of input %q", spec.Inputs[port].Name)
	})
}

// place returns where the profile has the record of a call.
func (p *pass[T]) place(s int, kind schedule.Kind) **layout.Call {
	profile := &p.profile[s]
	switch {
	case kind == schedule.B:
		return &profile.Whole
	case kind == schedule.I:
		return &profile.Input
	case kind == schedule.W:
		return &profile.Weight
	case p.mode == evaluation:
		return &profile.Eval
	}
	return &profile.Forward
}

// keep puts a recorded call in its place in the profile. A call that was recorded before must do
// the same again; the first one names its buffers, those that it hands over after the port.
func (p *pass[T]) keep(s int, rec *recording[T], place **layout.Call, made *layout.Call, port func(i int) string) error {
	if first := *place; first == nil {
		rec.name(made.Out, p.at(s).Frames.Slots(s, 0), port)
	} else if first.Taken != made.Taken || !slices.Equal(first.Events, made.Events) || !slices.Equal(first.Out, made.Out) {
		return fmt.Errorf("it does not do the same when it is called again: %d changes of references at first, %d now", len(first.Events), len(made.Events))
	}
	*place, p.profile[s].Buffers, p.residents[s] = made, rec.buffers, rec.residents
	return nil
}

// births returns the numbers of the buffers that are born in a call, if it was recorded before.
func births(c *layout.Call) (numbers []int) {
	if c != nil {
		for _, e := range c.Events {
			if e.Op == layout.Alloc {
				numbers = append(numbers, e.Ref.Index)
			}
		}
	}
	return numbers
}

// results returns the place for what a call returns: the next stage's, or the outbox if the
// rank of the next stage gets a copy. No next stage is -1.
func (p *pass[T]) results(s, next int, place, sent effects.Place) effects.Effects {
	switch {
	case next < 0:
		return effects.Effects{To: effects.Output, Stage: int32(s)}
	case p.Copy == nil:
		return effects.Effects{To: place, Stage: int32(next)}
	}
	return effects.Effects{To: sent, Stage: int32(s)}
}

// send copies the results of a stage from the outbox to a place of the next stage, so that no two
// stages have the same buffer, and ends them.
func (p *pass[T]) send(s, next int, e *effects.Effects, to effects.Place, none uint64) error {
	source, target := p.at(s), p.at(next)
	if e.To == to {
		return nil
	}
	handles := source.Frames.Placed(e.To, s, 0)
	copies, err := 0, error(nil)
	for ; copies < len(handles) && err == nil; copies++ {
		if none>>copies&1 == 0 {
			handles[copies], err = p.Copy(source.Rank, target.Rank, handles[copies])
		}
	}
	if err != nil {
		copies-- // the last one was not made
	} else {
		err = target.Frames.PutAt(to, next, 0, handles, none)
	}
	if err != nil {
		target.GiveBack(handles[:copies])
		return err
	}
	return source.Frames.DropAt(e.To, s, 0)
}

// forward records F.
func (p *pass[T]) forward(ctx context.Context, s int) error {
	rank := p.at(s)
	st, next := &rank.Stages[s], s+1
	if st.Before >= 0 {
		for i, h := range rank.Frames.Placed(effects.Input, s, 0) {
			p.stages[s].lend(layout.In, i, h)
		}
	}
	if st.After < 0 {
		next = -1
	}
	e := p.results(s, next, effects.Input, effects.SentOutput)
	err := p.stage(s, schedule.F, !p.hasBackward(st), &e, func() error { return rank.Forward(ctx, s, 0, &e) })
	if err == nil && st.Before >= 0 {
		err = rank.Frames.DropAt(effects.Input, s, 0)
	}
	switch {
	case err != nil:
		return err
	case next < 0:
		return rank.Frames.DropAt(effects.Output, s, 0)
	}
	return p.send(s, next, &e, effects.Input, 0)
}

// backward records B, I or W.
func (p *pass[T]) backward(ctx context.Context, s int, kind schedule.Kind) error {
	rank := p.at(s)
	st := &rank.Stages[s]
	if kind == schedule.W {
		return p.stage(s, kind, true, &effects.Effects{}, func() error { return rank.BackwardWeight(ctx, s, 0) })
	}
	if st.After >= 0 {
		for i, h := range rank.Frames.Placed(effects.Gradient, s, 0) {
			p.stages[s].lend(layout.GradOut, i, h)
		}
	}
	var e effects.Effects
	if st.WantsGradient {
		e = p.results(s, s-1, effects.Gradient, effects.SentGradient)
	}
	err := p.stage(s, kind, kind == schedule.B || st.Spec.Frozen, &e, func() error { return rank.Backward(ctx, s, 0, kind, &e) })
	if err == nil && st.After >= 0 {
		err = rank.Frames.DropAt(effects.Gradient, s, 0)
	}
	if err != nil || !st.WantsGradient {
		return err
	}
	return p.send(s, s-1, &e, effects.Gradient, st.NoGradIn)
}
