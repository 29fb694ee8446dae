package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// begin prepares the rank for a step. The rank must not hold anything yet.
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
	r.result = &Result{Step: r.step, Microbatches: r.m, FirstNonFinite: -1, Books: r.Frames.Books(), Plan: plan.Plan}
	r.losses.ledger.Reset()
	r.Frames.Begin(r.step, pass, plan.extent)
	if r.peak.watched = r.peak.space != nil && plan.Mode == schedule.Training && r.levels.near.layout == nil; r.peak.watched {
		r.peak.space.WatchPeak(true)
	}
}

// end clears the state of the step.
func (r *worker[T]) end() {
	_ = r.unlay() // if the step has failed, its error takes precedence
	r.plan, r.Source, r.result = nil, nil, nil
}

// runProgram runs the actions of the rank's program and the end of the step. If a call on a view
// fails in a stage or a source, it unwinds the stack to this function.
func (r *worker[T]) runProgram(ctx context.Context) (err error) {
	defer r.Frames.Recover(&err)
	if err := r.losses.cells.reset(); err != nil {
		return err
	}
	if r.params.shared != nil {
		if err := r.params.shared.Begin(r.step); err != nil {
			return err
		}
	}
	if err := r.execute(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}

// execute runs the actions of the rank's program in order.
func (r *worker[T]) execute(ctx context.Context) error {
	for i, segment := range r.plan.Programs[r.Rank] {
		body := r.plan.effects[i]
		for repeat := range segment.Repeat {
			shift := repeat * segment.Stride
			r.levels.near.enter(i, repeat)
			r.levels.far.enter(i, repeat)
			for k, action := range segment.Body {
				action = action.Shift(shift)
				if r.levels.near.layout != nil || r.levels.far.layout != nil || r.peak.watched {
					r.setPosition(k)
				}
				if ctx.Err() != nil {
					return r.locate(action, context.Cause(ctx))
				}
				r.action = action
				if r.links.watcher != nil {
					r.links.watcher.Runs(r.step, action)
				}
				if r.cfg.Hooks.Action != nil {
					r.cfg.Hooks.Action(r.global, action)
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

// act runs one action and applies its memory effects, in order.
func (r *worker[T]) act(ctx context.Context, action schedule.Action, e *effects.Effects) error {
	if e.To != effects.None {
		r.expected[e.To]++
	}
	if !isCall(action.Kind()) {
		if err := r.transfer(ctx, action, e); err != nil {
			return r.locate(action, err)
		}
	} else if err := r.callStage(ctx, action, e); err != nil {
		return err
	}
	if err := r.drop(action, e); err != nil {
		return r.fault(action, err)
	}
	r.Frames.Settle()
	if action.Drop()&schedule.Retire != 0 {
		if err := r.retire(action); err != nil {
			return r.fault(action, err)
		}
	}
	return nil
}

// isCall reports whether actions of the kind call their stage.
func isCall(kind schedule.Kind) bool { return kind.Compute() || kind == schedule.Quantize }

// callStage runs an action that calls its stage. It reads the clock at the beginning of the first
// call and at the end of the last one. Its errors contain their location.
func (r *worker[T]) callStage(ctx context.Context, action schedule.Action, e *effects.Effects) error {
	if action == r.plan.first {
		r.clock.first, r.clock.waitedBefore = time.Now(), r.waited()
	}
	s, m := action.Stage(), action.Microbatch()
	if e.Ends>>effects.Far&1 == 1 {
		if err := r.Frames.WaitReload(ctx, s, m); err != nil {
			return r.fault(action, err)
		}
	}
	var err error
	if r.params.shared != nil {
		if err = r.params.shared.WaitGathered(s); err != nil {
			return r.locate(action, err)
		}
	}
	switch action.Kind() {
	case schedule.F:
		if item := r.plan.Item(m); e.Pulls && r.pulled-item <= r.cfg.Plan.LookAhead {
			err = r.pull(ctx, item)
		}
		if err == nil {
			r.expected[effects.Saved]++
			err = r.Forward(ctx, s, m, e)
		}
	case schedule.B, schedule.I:
		err = r.Backward(ctx, s, m, action.Kind(), e)
	case schedule.W:
		err = r.BackwardWeight(ctx, s, m)
	default:
		backward := r.plan.HasBackward(s)
		if backward {
			r.expected[effects.BackwardWeights]++
		}
		err = r.Quantize(ctx, s, backward)
	}
	if action == r.plan.last {
		r.clock.last, r.clock.waited = time.Now(), r.waited()
	}
	if err != nil {
		return r.fault(action, r.explain(err))
	}
	return nil
}

// output releases the outputs of the last stage, or hands them over to Config.Outputs.
func (r *worker[T]) output(action schedule.Action) error {
	if r.cfg.Outputs == nil || r.plan.Mode != schedule.ForwardOnly {
		return r.Frames.DropAt(effects.Output, action.Stage(), action.Microbatch())
	}
	out := r.Stages[action.Stage()].Out
	return r.Frames.GiveOutputs(out, func() error {
		defer clear(out)
		return r.cfg.Outputs(r.Frames.Index(r.plan.Item(action.Microbatch())), out)
	})
}

// pull asks the source for the entries up to the given item plus the look-ahead, but not beyond the
// step's last entry.
func (r *worker[T]) pull(ctx context.Context, item int) error {
	for last := effects.Upto(r.plan.Plan, item, r.cfg.Plan.LookAhead); r.pulled <= last; r.pulled++ {
		var before time.Duration
		if r.cfg.Hooks.Microbatch != nil {
			before = time.Since(r.clock.began)
		}
		err := r.fillPlanned(ctx, r.pulled)
		if err != nil {
			return r.sourceError(r.pulled, err)
		}
		if r.sourceCheck.made != nil {
			if err := r.checkEntry(r.pulled); err != nil {
				return err
			}
		}
		if r.cfg.Hooks.Microbatch != nil {
			r.clock.source += time.Since(r.clock.began) - before
		}
		r.expected[effects.Part] += bits.OnesCount64(r.plan.extent.WantedParts(r.pulled))
	}
	return nil
}

// sourceError adds the microbatch to an error from the source.
func (r *worker[T]) sourceError(item int, err error) error {
	m := r.Frames.Index(item)
	switch {
	case err == io.EOF:
		return fmt.Errorf("%w: %d of %d microbatches", ErrShortBatch, m, r.m)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %d of %d microbatches: %w", ErrShortBatch, m, r.m, err)
	}
	return fmt.Errorf("the source of microbatch %d: %w", m, err)
}

// drop releases the buffers that the action's drop bits say end with it (Ends). It reduces the
// expected counts by the objects that end with an action of its kind (Due), so that the audit finds a
// missing drop bit.
func (r *worker[T]) drop(action schedule.Action, e *effects.Effects) error {
	s, m := action.Stage(), action.Microbatch()
	for due := e.Due; due != 0; due &= due - 1 {
		r.expected[due.First()]--
	}
	for ends := e.Ends; ends != 0; ends &= ends - 1 {
		var err error
		switch place := ends.First(); place {
		case effects.Part:
			r.expected[place] -= bits.OnesCount64(e.Parts)
			err = r.Frames.DropParts(m, e.Parts)
		case effects.Saved:
			err = r.Frames.DropSaved(s, m, action.Kind(), e.Last)
		case effects.Far:
			r.expected[place]--
			err = r.Frames.DropFar(s, m)
		case effects.Output:
			err = r.output(action)
		default:
			err = r.Frames.DropAt(place, s, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// retire compares the books after a microbatch's last action (L6) and adds a record to the memory
// log.
func (r *worker[T]) retire(action schedule.Action) error {
	if err := r.Frames.Audit(r.expected); err != nil && !r.cfg.Memory.TolerateLeaks {
		return err
	}
	if err := r.auditPlan(); err != nil {
		return err
	}
	s := &r.sample
	r.Frames.Sample(s)
	r.samplePlan(s)
	s.Microbatch, s.Stage, s.Kind = r.Frames.Index(r.plan.Item(action.Microbatch())), action.Stage(), action.Kind().String()
	if r.losses.objective >= 0 {
		s.Weight = r.losses.ledger.Weight(r.losses.objective)
	}
	r.result.raisePeak(s.Peak, &s.PeakClasses)
	r.result.FarPeak = max(r.result.FarPeak, s.FarPeak)
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
	if r.params.shared != nil {
		r.params.shared.Stop()
	}
	r.GiveBack(r.links.received)
	r.Abort()
}
