package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
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
	carried [][]T      // by stage: its outputs on their way, then the gradients of its inputs
}

// pass records one way through all stages.
func (r *recording[T]) pass(ctx context.Context, way way, profile []layout.StageProfile) (err error) {
	t := trip[T]{recording: r, way: way, profile: profile,
		tapes: make([]*tape[T], len(profile)), carried: make([][]T, len(profile))}
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

// record runs a call of a stage, and ends what it has taken. returned is what the call
// hands over, once it is through, but for the ports whose bit is set in none.
func (t *trip[T]) record(s int, kind schedule.Kind, last bool, returned []T, none uint64, f func() error) error {
	runner, tape, place := t.at(s), t.tapes[s], t.call(s, kind)
	if tape.again = nil; *place != nil {
		tape.again = births(*place)
	}
	made := &layout.Call{}
	err := tape.record(kind.String(), func() error {
		err := runner.frames.End(f())
		if err != nil {
			return err
		}
		before := len(tape.events)
		if kind != schedule.F || last {
			err = runner.frames.DropSaved(s, 0, kind, last)
		}
		made.Taken = len(tape.events) - before
		return err
	})
	if err != nil {
		return err
	}
	made.Events, made.Out = tape.events, tape.handedAll(returned, none)
	for i, ref := range made.Out {
		if ref.Kind != layout.None || none>>i&1 == 1 {
			continue
		}
		missing := &frames.MissingError{Port: i, Err: memory.ErrNone}
		if spec := &runner.stages[s].spec; kind == schedule.F {
			return unset(missing, "output", "out", "Forward", spec.Outputs)
		} else {
			return unset(missing, "gradient of input", "gradIn", "the backward", spec.Inputs)
		}
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

// bring returns what a stage has handed over for another one, in the space of that
// one's rank: a copy of each, so that no two are the same buffer, where there is a way
// to copy.
func (t *trip[T]) bring(from, to int) ([]T, error) {
	source, target := t.at(from), t.at(to)
	handles := t.carried[from]
	if t.copied == nil {
		return handles, nil
	}
	defer source.giveBack(handles)
	copies := make([]T, len(handles))
	for i, h := range handles {
		if _, there := t.spaces[source.rank].Serial(h); !there {
			continue
		}
		made, err := t.copied(source.rank, target.rank, h)
		if err != nil {
			target.giveBack(copies)
			return nil, err
		}
		copies[i] = made
	}
	return copies, nil
}

// forward records F.
func (t *trip[T]) forward(ctx context.Context, s int) error {
	runner := t.at(s)
	st, c := &runner.stages[s], runner.frames
	if st.before >= 0 {
		in, err := t.bring(s-1, s)
		if err != nil {
			return err
		}
		for i, h := range in {
			t.tapes[s].lent(layout.In, i, h)
		}
		if err := c.PutAt(effects.Input, s, 0, in, 0); err != nil {
			runner.giveBack(in)
			return err
		}
	}
	in, out := make([]T, len(st.in)), make([]T, len(st.out))
	if err := c.Open(s, 0, in); err != nil {
		return err
	}
	last := !t.hasBackward(st)
	err := t.record(s, schedule.F, last, out, 0, func() error {
		return st.Forward(ctx, batchctx.NewMicrobatch(c.Call(s, 0, frames.InForward)), in, out)
	})
	if err == nil && st.before >= 0 {
		err = c.DropAt(effects.Input, s, 0)
	}
	if err != nil || st.after < 0 {
		runner.giveBack(out)
		return err
	}
	t.carried[s] = out
	return nil
}

// backward records B, I or W, as the runner runs them.
func (t *trip[T]) backward(ctx context.Context, s int, kind schedule.Kind) error {
	runner := t.at(s)
	st, c := &runner.stages[s], runner.frames
	if kind == schedule.W {
		return t.record(s, kind, true, nil, 0, func() error {
			return st.split.BackwardWeight(ctx, batchctx.NewMicrobatch(c.Call(s, 0, frames.InBackwardWeight)))
		})
	}
	var gradOut, gradIn []T
	if st.after >= 0 {
		handles, err := t.bring(s+1, s)
		if err != nil {
			return err
		}
		for i, h := range handles {
			t.tapes[s].lent(layout.GradOut, i, h)
		}
		if err := c.PutAt(effects.Gradient, s, 0, handles, st.noGradOut); err != nil {
			runner.giveBack(handles)
			return err
		}
		gradOut = make([]T, len(st.gradOut))
		if err := c.Gradients(s, 0, gradOut, st.noGradOut); err != nil {
			return err
		}
	}
	if st.wantsGradient {
		gradIn = make([]T, len(st.gradIn))
	}
	err := t.record(s, kind, kind == schedule.B || st.spec.Frozen, gradIn, st.noGradIn, func() error {
		if kind == schedule.I && st.split != nil {
			return st.split.BackwardInput(ctx, batchctx.NewMicrobatch(c.Call(s, 0, frames.InBackwardInput)), gradOut, gradIn)
		}
		return st.Backward(ctx, batchctx.NewMicrobatch(c.Call(s, 0, frames.InBackward)), gradOut, gradIn)
	})
	if err == nil && st.after >= 0 {
		err = c.DropAt(effects.Gradient, s, 0)
	}
	if err != nil {
		runner.giveBack(gradIn)
		return err
	}
	t.carried[s] = gradIn
	return nil
}
