package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// begin makes the runner ready for a step that holds nothing yet.
func (r *worker[T]) begin(plan *program) {
	pass := frames.Train
	if plan.Mode == schedule.ForwardOnly {
		pass = frames.Eval
	}
	r.plan = plan
	r.pulled, r.action = 0, 0
	r.clock = clock{}
	if r.cfg.Hooks.Microbatch != nil {
		r.clock.began = time.Now()
	}
	r.expected = frames.Counts{}
	r.sample = memory.Sample{}
	r.result = &Result{Step: r.step, Microbatches: plan.Microbatches, FirstNonFinite: -1, Books: r.frames.Books(), Simulated: plan.report}
	r.ledger.Reset()
	r.frames.Begin(r.step, pass, plan.extent)
	r.watchPeak(plan.Mode)
}

// end forgets what belonged to the step.
func (r *worker[T]) end() {
	_ = r.unlay() // where a step has failed, its error is the one to tell
	r.plan, r.source, r.result = nil, nil, nil
}

// program runs the actions of the rank's program, and the end of the step. A call on a
// view that fails, anywhere in a stage or a source, unwinds to here.
func (r *worker[T]) program(ctx context.Context) (err error) {
	defer r.frames.Recover(&err)
	if err := r.cells.reset(); err != nil {
		return err
	}
	if err := r.execute(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}

// execute runs the actions of the rank's program in order.
func (r *worker[T]) execute(ctx context.Context) error {
	for i, segment := range r.plan.Programs[r.rank] {
		body := r.plan.effects[i]
		for repeat := range segment.Repeat {
			shift := repeat * segment.Stride
			base := r.levels.base(i, repeat)
			for k, action := range segment.Body {
				action = action.Shift(shift)
				if r.levels.rank != nil || r.peak.watched {
					r.at(base + k)
				}
				if ctx.Err() != nil {
					return r.locate(action, context.Cause(ctx))
				}
				r.action = action
				if r.watcher != nil {
					r.watcher.Runs(r.step, action)
				}
				if r.cfg.Hooks.Action != nil {
					r.cfg.Hooks.Action(r.rank, action)
				}
				if err := r.act(ctx, action, &body[k]); err != nil {
					return err
				}
				r.result.Actions++
			}
		}
	}
	return nil
}

// act runs one action, with its effects on memory in their order.
func (r *worker[T]) act(ctx context.Context, action schedule.Action, e *effects.Effects) error {
	if !calls(action.Kind()) {
		if err := r.actBetween(ctx, action, e); err != nil {
			return r.locate(action, err)
		}
	} else if err := r.compute(ctx, action, e); err != nil {
		return r.fault(action, r.explain(err))
	}
	if err := r.drop(action, e); err != nil {
		return r.fault(action, err)
	}
	r.frames.Settle()
	if action.Drop()&schedule.Retire != 0 {
		if err := r.retire(action); err != nil {
			return r.fault(action, err)
		}
	}
	return nil
}

// put gives the context what an action hands over, but for the ports whose bit is set in none.
func (r *worker[T]) put(e *effects.Effects, m int, h []T, none uint64) error {
	r.expected[e.To]++
	return r.frames.PutAt(e.To, int(e.Stage), m, h, none)
}

// calls reports whether an action of the kind is a call of its stage.
func calls(kind schedule.Kind) bool { return kind.Compute() || kind == schedule.Quantize }

// compute runs a call of a stage, between the two readings of the clock at the first
// and the last of them.
func (r *worker[T]) compute(ctx context.Context, action schedule.Action, e *effects.Effects) error {
	if action == r.plan.first {
		r.clock.first, r.clock.waitedBefore = time.Now(), r.waited()
	}
	var err error
	switch s, m := action.Stage(), action.Microbatch(); action.Kind() {
	case schedule.F:
		err = r.forward(ctx, s, m, e)
	case schedule.B:
		err = r.backward(ctx, s, m, frames.InBackward, e)
	case schedule.I:
		err = r.backward(ctx, s, m, frames.InBackwardInput, e)
	case schedule.W:
		err = r.backwardWeight(ctx, s, m)
	default:
		err = r.quantize(ctx, s, e)
	}
	if action == r.plan.last {
		r.clock.last, r.clock.waited = time.Now(), r.waited()
	}
	return err
}

// forward runs F.
func (r *worker[T]) forward(ctx context.Context, s, m int, e *effects.Effects) error {
	if item := r.plan.Item(m); e.Pulls && r.pulled-item <= r.cfg.Plan.LookAhead {
		if err := r.pull(ctx, item); err != nil {
			return err
		}
	}
	st := &r.stages[s]
	if err := r.frames.Open(s, m, st.in); err != nil {
		return err
	}
	r.expected[effects.Saved]++
	view := batchctx.NewMicrobatch(r.frames.Call(s, m, frames.InForward))
	if err := r.frames.End(st.Forward(ctx, view, st.in, st.out)); err != nil {
		return err
	}
	clear(st.in)
	if err := r.put(e, m, st.out, 0); err != nil {
		return unset(err, "output", "out", "Forward", st.spec.Outputs)
	}
	return nil
}

// unset names the port that a stage has set no tensor for.
func unset(err error, what, argument, call string, ports []stages.Port) error {
	var missing *frames.MissingError
	if !errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("it set no %s %d (%s): set %s[%d] in %s: %w", what, missing.Port, ports[missing.Port].Name, argument, missing.Port, call, missing)
}

// output ends the outputs of a last stage, or gives them to whoever asked.
func (r *worker[T]) output(action schedule.Action) error {
	if r.cfg.Outputs == nil || r.plan.Mode != schedule.ForwardOnly {
		return r.frames.DropAt(effects.Output, action.Stage(), action.Microbatch())
	}
	out := r.stages[action.Stage()].out
	return r.frames.GiveOutputs(out, func() error {
		defer clear(out)
		return r.cfg.Outputs(r.plan.Item(action.Microbatch()), out)
	})
}

// backward runs B, or I where the call says so.
func (r *worker[T]) backward(ctx context.Context, s, m int, call frames.Call, e *effects.Effects) error {
	st := &r.stages[s]
	var gradOut, gradIn []T
	if st.after >= 0 {
		gradOut = st.gradOut
		if err := r.frames.Gradients(s, m, gradOut, st.noGradOut); err != nil {
			return err
		}
	}
	if st.wantsGradient {
		gradIn = st.gradIn
	}
	if st.split == nil { // a frozen stage's I is its whole backward, without gradients
		call = frames.InBackward
	}
	view := batchctx.NewMicrobatch(r.frames.Call(s, m, call))
	var err error
	if call == frames.InBackwardInput {
		err = st.split.BackwardInput(ctx, view, gradOut, gradIn)
	} else {
		err = st.Backward(ctx, view, gradOut, gradIn)
	}
	if err = r.frames.End(err); err != nil {
		return err
	}
	clear(st.gradOut)
	if gradIn == nil {
		return nil
	}
	if err := r.frames.CheckSizes(s, m, gradIn, st.noGradIn); err != nil {
		return err
	}
	if err := r.put(e, m, gradIn, st.noGradIn); err != nil {
		return unset(err, "gradient of input", "gradIn", "the backward", st.spec.Inputs)
	}
	clear(gradIn) // a port without a gradient may have got one
	return nil
}

// backwardWeight runs W.
func (r *worker[T]) backwardWeight(ctx context.Context, s, m int) error {
	if r.stages[s].split == nil { // which the check has refused
		return errors.New("runner: the stage does not split its backward")
	}
	view := batchctx.NewMicrobatch(r.frames.Call(s, m, frames.InBackwardWeight))
	return r.frames.End(r.stages[s].split.BackwardWeight(ctx, view))
}

// pull asks the source for entries up to an item, and the look-ahead beyond it, but never
// for more than the step has.
func (r *worker[T]) pull(ctx context.Context, item int) error {
	for upto := effects.Upto(r.plan.Plan, item, r.cfg.Plan.LookAhead); r.pulled <= upto; r.pulled++ {
		var before time.Duration
		if r.cfg.Hooks.Microbatch != nil {
			before = time.Since(r.clock.began)
		}
		err := r.fillPlanned(ctx, r.pulled)
		if err != nil {
			return r.refused(r.pulled, err)
		}
		if r.checked.made != nil {
			if err := r.checkEntry(r.pulled); err != nil {
				return err
			}
		}
		if r.cfg.Hooks.Microbatch != nil {
			r.clock.source += time.Since(r.clock.began) - before
		}
		r.expected[effects.Part] += bits.OnesCount64(r.plan.extent.Of(r.pulled))
	}
	return nil
}

// refused says for which microbatch the source gave no entry.
func (r *worker[T]) refused(item int, err error) error {
	switch {
	case err == io.EOF:
		return fmt.Errorf("%w: %d of %d microbatches", ErrShortBatch, item, r.plan.Microbatches)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %d of %d microbatches: %w", ErrShortBatch, item, r.plan.Microbatches, err)
	}
	return fmt.Errorf("the source of microbatch %d: %w", item, err)
}

// fill asks the source for the entry of an item.
func (r *worker[T]) fill(ctx context.Context, item int) error {
	if err := r.frames.BeginEntry(item); err != nil {
		return err
	}
	return r.frames.EndEntry(r.source.Next(ctx, batchctx.NewEntry(r.frames)))
}

// drop ends what the action's drop bits say, and writes down what should be gone by
// the action's kind: were a bit missing, the audit would tell.
func (r *worker[T]) drop(action schedule.Action, e *effects.Effects) error {
	s, m := action.Stage(), action.Microbatch()
	for due := e.Due; due != 0; due &= due - 1 {
		r.expected[due.First()]--
	}
	for left := e.Ends; left != 0; left &= left - 1 {
		var err error
		switch place := left.First(); place {
		case effects.Part:
			r.expected[place] -= bits.OnesCount64(e.Parts)
			err = r.frames.DropParts(m, e.Parts)
		case effects.Saved:
			err = r.frames.DropSaved(s, m, action.Kind(), e.Last)
		case effects.Output:
			err = r.output(action)
		default:
			err = r.frames.DropAt(place, s, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// retire compares the books after a microbatch's last action (L6) and writes
// the record of the memory log.
func (r *worker[T]) retire(action schedule.Action) error {
	if err := r.frames.Audit(r.expected); err != nil && !r.cfg.Memory.TolerateLeaks {
		return err
	}
	if err := r.auditPlan(); err != nil {
		return err
	}
	s := &r.sample
	r.frames.Sample(s)
	r.samplePlan(s)
	s.Microbatch, s.Stage, s.Kind = r.plan.Item(action.Microbatch()), action.Stage(), action.Kind().String()
	if r.objective >= 0 {
		s.Weight = r.ledger.Weight(r.objective)
	}
	r.result.rise(s.Peak, &s.PeakClasses)
	r.result.Growth.Bytes = max(r.result.Growth.Bytes, s.Growth)
	if r.cfg.Hooks.Microbatch != nil {
		s.Time = r.clock.began.UnixNano() + int64(time.Since(r.clock.began))
		s.WaitData, r.clock.source = int64(r.clock.source), 0
		r.cfg.Hooks.Microbatch(s)
	}
	r.ring.Put(s)
	return nil
}

// abort releases everything that the step holds (L8).
func (r *worker[T]) abort() {
	for s := range r.stages {
		st := &r.stages[s]
		clear(st.in)
		clear(st.gradOut)
		r.giveBack(st.out)
		r.giveBack(st.gradIn)
	}
	r.giveBack(r.received)
	r.frames.Abort()
}

// giveBack releases what a failed call had put there before it failed.
func (r *worker[T]) giveBack(handles []T) {
	var none T
	for i, h := range handles {
		_, _ = r.space.Release(h) // most are none, which Release refuses
		handles[i] = none
	}
}
