package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// pass sends one microbatch of one shape through all stages.
type pass[T any] struct {
	*recorder[T]
	plan    *schedule.Plan // for the effects of calls; unless all ranks share one space, every stage has its own rank, so that no two stages share a buffer
	split   bool           // stages that can split their backward do so
	profile []layout.StageProfile
	stages  []*recording[T]
}

// pass records the calls of all stages in one pass.
func (r *recorder[T]) pass(ctx context.Context, mode schedule.Mode, split bool, profile []layout.StageProfile) (err error) {
	plan := &schedule.Plan{Mode: mode, Placement: r.dry.Ranks[0].Placement}
	plan.Placement.Rank = make([]int, len(profile))
	for s := range profile {
		if plan.Frozen = append(plan.Frozen, r.dry.StageInfo[s].Frozen); r.dry.Copy != nil {
			plan.Placement.Rank[s] = s
		}
	}
	p := pass[T]{r, plan, split, profile, make([]*recording[T], len(profile))}
	kind := frames.Train
	if mode == schedule.ForwardOnly {
		kind = frames.Eval
	}
	for _, rank := range r.dry.Ranks {
		defer r.stop(rank)
		defer rank.Frames.Recover(&err)
		r.begin(rank, kind, r.wanted(rank.Rank))
		if err := rank.Fill(ctx, 0); err != nil {
			return fmt.Errorf("the source of rank %d: %w", rank.Rank, err)
		}
	}
	for s := range profile {
		if r.dry.Whole != nil { // the calls need the buffers, which recordWhole records
			if err := errors.Join(r.dry.Whole(s, effects.Gathered), r.dry.Whole(s, effects.Accumulator)); err != nil {
				return p.fault(s, schedule.Unshard, err)
			}
		}
		if err := p.quantize(ctx, s); err != nil {
			return p.fault(s, schedule.Quantize, err)
		}
		p.stages[s] = p.recordStage(s)
		if err := p.call(ctx, s, schedule.F); err != nil {
			return p.fault(s, schedule.F, err)
		}
	}
	for s := range slices.Backward(profile) {
		st := &r.at(s).Stages[s]
		for _, kind := range p.backwardKinds(s) {
			if err := p.call(ctx, s, kind); err != nil {
				return p.fault(s, kind, err)
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

// backwardKinds returns the backward calls of a stage.
func (p *pass[T]) backwardKinds(s int) []schedule.Kind {
	switch st := &p.at(s).Stages[s]; {
	case !p.plan.HasBackward(s):
		return nil
	case st.Spec.Frozen:
		return []schedule.Kind{schedule.I}
	case p.split && st.Split != nil:
		return []schedule.Kind{schedule.I, schedule.W}
	}
	return []schedule.Kind{schedule.B}
}

// recordStage returns a recording for a stage's calls, and lends it the parts of the entry that the stage
// reads.
func (p *pass[T]) recordStage(s int) *recording[T] {
	rank := p.at(s)
	rec := p.record(rank, p.profile[s].Buffers)
	maps.Copy(rec.residents, p.residents[s])
	for _, read := range rank.Stages[s].Spec.Reads {
		part := slices.Index(rank.Parts, read.Part)
		if h, held := rank.Frames.EntryPart(0, part); held {
			rec.lend(layout.PartRead, part, h)
		}
	}
	return rec
}

// quantize records QUANTIZE. The copies of weights stay in the frames until the end of the pass, for
// the other calls of the stage.
func (p *pass[T]) quantize(ctx context.Context, s int) error {
	rank := p.at(s)
	st := &rank.Stages[s]
	if st.Quantizer == nil {
		return nil
	}
	place, backward := &p.profile[s].QuantizeEval, p.plan.HasBackward(s)
	if backward {
		place = &p.profile[s].Quantize
	}
	rec := p.recordStage(s)
	rec.earlier = births(*place)
	if err := rec.call(schedule.Quantize.String(), func() error { return rank.Quantize(ctx, s, backward) }); err != nil {
		return err
	}
	made := &layout.Call{Events: rec.events}
	var names []string
	rank.Frames.Copies(s, func(w frames.WeightCopy, h T) {
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

// call records a stage call, including the releases of the saved state that the call takes. Then it
// releases the arguments, and sends the results to the stage that reads them.
func (p *pass[T]) call(ctx context.Context, s int, kind schedule.Kind) error {
	rank, rec, place := p.at(s), p.stages[s], p.place(s, kind)
	e := effects.OfKind(p.plan, s, kind)
	ends := func(place effects.BufferKind) bool { return e.Ends>>place&1 == 1 }
	if ends(effects.Input) {
		rec.lendAll(layout.In, rank.Frames.Handles(effects.Input, s, 0))
	}
	if ends(effects.Gradient) {
		rec.lendAll(layout.GradOut, rank.Frames.Handles(effects.Gradient, s, 0))
	}
	rec.earlier = births(*place)
	made := &layout.Call{}
	err := rec.call(kind.String(), func() (err error) {
		switch kind {
		case schedule.F:
			err = rank.Forward(ctx, s, 0, &e)
		case schedule.W:
			err = rank.BackwardWeight(ctx, s, 0)
		default:
			err = rank.Backward(ctx, s, 0, kind, &e)
		}
		before := len(rec.events)
		if err == nil && ends(effects.Saved) {
			err = rank.Frames.DropSaved(s, 0, kind, e.Last)
		}
		made.Taken = len(rec.events) - before
		return err
	})
	if err != nil {
		return err
	}
	made.Events, made.Out = rec.events, []layout.Ref{}
	if e.To != effects.None {
		made.Out = rec.allHandedOver(rank.Frames.Handles(e.To, int(e.Stage), 0))
	}
	spec := &rank.Stages[s].Spec
	err = p.keep(s, rec, place, made, func(port int) string {
		if kind == schedule.F {
			return fmt.Sprintf("output %q", spec.Outputs[port].Name)
		}
		return fmt.Sprintf("gradient of input %q", spec.Inputs[port].Name)
	})
	if err != nil {
		return err
	}
	if kind == schedule.F && p.plan.Mode == schedule.Training {
		p.profile[s].Slots = rec.slots(len(spec.Slots), rank.Frames.Slots(s, 0))
	}
	for rest := e.Ends &^ (1 << effects.Saved); rest != 0; rest &= rest - 1 {
		if err := rank.Frames.DropAt(rest.First(), s, 0); err != nil {
			return err
		}
	}
	switch e.To {
	case effects.SentOutput:
		return p.send(s, e.To, s+1, effects.Input, 0)
	case effects.SentGradient:
		return p.send(s, e.To, s-1, effects.Gradient, rank.Stages[s].NoGradIn)
	}
	return nil
}

// place returns the field of the profile that stores the record of a call.
func (p *pass[T]) place(s int, kind schedule.Kind) **layout.Call {
	profile := &p.profile[s]
	switch {
	case kind == schedule.B:
		return &profile.Whole
	case kind == schedule.I:
		return &profile.Input
	case kind == schedule.W:
		return &profile.Weight
	case p.plan.Mode == schedule.ForwardOnly:
		return &profile.Eval
	}
	return &profile.Forward
}

// keep stores a recorded call in the profile. The first recording of a call names its buffers; port names
// those that it hands over. A second recording must contain the same changes.
func (p *pass[T]) keep(s int, rec *recording[T], place **layout.Call, made *layout.Call, port func(i int) string) error {
	if first := *place; first == nil {
		rank := p.at(s)
		names := rank.Stages[s].Spec.Slots
		rec.name(made.Out, rec.slots(len(names), rank.Frames.Slots(s, 0)), names, port)
	} else if first.Taken != made.Taken || !slices.Equal(first.Events, made.Events) || !slices.Equal(first.Out, made.Out) {
		return fmt.Errorf("the second call differs from the first: the first made %d changes of references, the second %d", len(first.Events), len(made.Events))
	}
	*place, p.profile[s].Buffers, p.residents[s] = made, rec.buffers, rec.residents
	return nil
}

// births returns the numbers of the buffers that a recorded call allocates, or none if c is nil.
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

// send copies the results of a stage from its outbox to a place of stage next, and releases them.
func (p *pass[T]) send(s int, outbox effects.BufferKind, next int, to effects.BufferKind, none uint64) error {
	source, target := p.at(s), p.at(next)
	handles := source.Frames.Handles(outbox, s, 0)
	copies, err := 0, error(nil)
	for ; copies < len(handles) && err == nil; copies++ {
		if none>>copies&1 == 0 {
			handles[copies], err = p.dry.Copy(source.Rank, target.Rank, handles[copies])
		}
	}
	if err != nil {
		copies-- // the last copy was not made
	} else {
		err = target.Frames.PutAt(to, next, 0, handles, none)
	}
	if err != nil {
		target.GiveBack(handles[:copies])
		return err
	}
	return source.Frames.DropAt(outbox, s, 0)
}
