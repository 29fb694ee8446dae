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
	r.running = running{
		plan: plan, batch: r.running.batch, sourceCheck: r.running.sourceCheck,
		result: &Result{Step: r.step, Microbatches: r.running.batch.m, FirstNonFinite: -1, Audited: -1, Books: r.calls.Frames.Books(), Plan: plan.Plan},
	}
	if r.cfg.Hooks.Microbatch != nil {
		r.running.clock.began = time.Now()
	}
	r.losses.ledger.Reset()
	extent := plan.extent
	if order := r.running.batch.order; order != nil {
		extent.Order = order[r.replica]
	}
	extent.Repeats, extent.Repeated = r.running.batch.repeat.extra(r.replica) > 0, r.running.batch.repeat.index
	r.beginAudit()
	r.calls.Frames.Begin(r.step, pass, extent)
	if r.peak.watched = r.peak.space != nil && plan.Mode == schedule.Training && r.memory.levels.near.layout == nil; r.peak.watched {
		r.peak.space.WatchPeak(true)
	}
}

// end clears the state of the step.
func (r *worker[T]) end() {
	_ = r.unlay() // if the step has failed, its error takes precedence
	r.calls.Source, r.running = nil, running{}
}

// runProgram runs the actions of the rank's program and the end of the step. If a call on a view
// fails in a stage or a source, it unwinds the stack to this function.
func (r *worker[T]) runProgram(ctx context.Context) (err error) {
	defer r.calls.Frames.Recover(&err)
	if err := r.losses.cells.reset(); err != nil {
		return err
	}
	if r.params.shared != nil {
		if err := r.params.shared.Begin(r.step); err != nil {
			return err
		}
	}
	if r.running.audit != nil {
		if err := r.auditWeights(false); err != nil {
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
	for i, segment := range r.running.plan.Programs[r.calls.Rank] {
		body := r.running.plan.effects[i]
		for repeat := range segment.Repeat {
			shift := repeat * segment.Stride
			r.memory.levels.near.enter(i, repeat)
			r.memory.levels.far.enter(i, repeat)
			for k, action := range segment.Body {
				action = action.Shift(shift)
				if r.memory.levels.near.layout != nil || r.memory.levels.far.layout != nil || r.peak.watched {
					r.setPosition(k)
				}
				if ctx.Err() != nil {
					return r.locate(action, context.Cause(ctx))
				}
				r.running.action = action
				if r.links.watcher != nil {
					r.links.watcher.Runs(r.step, action)
				}
				if r.cfg.Hooks.Action != nil {
					r.cfg.Hooks.Action(r.global, action)
				}
				if err := r.act(ctx, action, &body[k]); err != nil {
					return err
				}
				r.running.result.Actions++
			}
		}
	}
	return nil
}

// act runs one action and applies its memory effects, in order.
func (r *worker[T]) act(ctx context.Context, action schedule.Action, e *effects.Effects) error {
	if e.To != effects.None {
		r.running.expected[e.To]++
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
	r.calls.Frames.UpdateExcess()
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
	if action == r.running.plan.first {
		r.running.clock.first, r.running.clock.waitedBefore = time.Now(), r.waited()
	}
	s, m := action.Stage(), action.Microbatch()
	if e.Ends>>effects.Far&1 == 1 {
		if err := r.calls.Frames.WaitReload(ctx, s, m); err != nil {
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
		if err = r.pull(ctx, r.running.plan.BatchIndex(m)); err == nil {
			r.running.expected[effects.Saved]++
			err = r.calls.Forward(ctx, s, m, e)
		}
	case schedule.B, schedule.I:
		err = r.calls.Backward(ctx, s, m, action.Kind(), e)
	case schedule.W:
		err = r.calls.BackwardWeight(ctx, s, m)
	default:
		backward := r.running.plan.HasBackward(s)
		if backward {
			r.running.expected[effects.BackwardWeights]++
		}
		err = r.calls.Quantize(ctx, s, backward)
	}
	if action == r.running.plan.last {
		r.running.clock.last, r.running.clock.waited = time.Now(), r.waited()
	}
	if err == nil && r.running.audit != nil {
		err = r.auditCall(action, e)
	}
	if err != nil {
		return r.fault(action, r.explain(err))
	}
	return nil
}

// output releases the outputs of the last stage, or hands them over to Config.Outputs.
func (r *worker[T]) output(action schedule.Action) error {
	if r.cfg.Outputs == nil || r.running.plan.Mode != schedule.ForwardOnly {
		return r.calls.Frames.DropAt(effects.Output, action.Stage(), action.Microbatch())
	}
	out := r.calls.Stages[action.Stage()].Out
	return r.calls.Frames.GiveOutputs(out, func() error {
		defer clear(out)
		return r.cfg.Outputs(r.calls.Frames.Index(r.running.plan.BatchIndex(action.Microbatch())), out)
	})
}

// pull asks the source for the entries up to the given batch index plus the look-ahead, but not beyond the
// step's last entry.
func (r *worker[T]) pull(ctx context.Context, batchIndex int) error {
	for last := effects.Upto(r.running.plan.Plan, batchIndex, r.cfg.Plan.LookAhead); r.running.pulled <= last; r.running.pulled++ {
		var before time.Duration
		if r.cfg.Hooks.Microbatch != nil {
			before = time.Since(r.running.clock.began)
		}
		err := r.fillPlanned(ctx, r.running.pulled)
		if err != nil {
			return r.sourceError(r.running.pulled, err)
		}
		if r.running.sourceCheck.made != nil {
			if err := r.checkEntry(r.running.pulled); err != nil {
				return err
			}
		}
		if r.running.audit != nil {
			if err := r.auditEntry(r.running.pulled); err != nil {
				return err
			}
		}
		if r.cfg.Hooks.Microbatch != nil {
			r.running.clock.source += time.Since(r.running.clock.began) - before
		}
		r.running.expected[effects.Part] += bits.OnesCount64(r.running.plan.extent.WantedParts(r.running.pulled))
	}
	return nil
}

// sourceError adds the microbatch to an error from the source.
func (r *worker[T]) sourceError(batchIndex int, err error) error {
	m := r.calls.Frames.Index(batchIndex)
	switch {
	case err == io.EOF:
		return fmt.Errorf("%w: %d of %d microbatches", ErrShortBatch, m, r.running.batch.m)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %d of %d microbatches: %w", ErrShortBatch, m, r.running.batch.m, err)
	}
	return fmt.Errorf("the source of microbatch %d: %w", m, err)
}

// drop releases the buffers that end with the action according to its drop bits (Ends). It reduces the expected counts
// by the number of objects that must end with an action of its kind (Due), so that the audit finds a missing drop bit.
// For entry parts and far memory, which end at no fixed kind, it reduces them by what the drop bits release.
func (r *worker[T]) drop(action schedule.Action, e *effects.Effects) error {
	s, m := action.Stage(), action.Microbatch()
	for due := e.Due; due != 0; due &= due - 1 {
		r.running.expected[due.First()]--
	}
	for ends := e.Ends; ends != 0; ends &= ends - 1 {
		var err error
		switch place := ends.First(); place {
		case effects.Part:
			r.running.expected[place] -= bits.OnesCount64(e.Parts)
			err = r.calls.Frames.DropParts(m, e.Parts)
		case effects.Saved:
			err = r.calls.Frames.DropSaved(s, m, action.Kind(), e.Last)
		case effects.Far:
			r.running.expected[place]--
			err = r.calls.Frames.DropFar(s, m)
		case effects.Output:
			err = r.output(action)
		default:
			err = r.calls.Frames.DropAt(place, s, m)
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
	if err := r.calls.Frames.Audit(r.running.expected); err != nil && !r.cfg.Memory.TolerateLeaks {
		return err
	}
	if err := r.auditPlan(); err != nil {
		return err
	}
	s := r.sampleAt(action)
	r.running.result.raisePeak(s.Peak, &s.PeakClasses)
	r.running.result.FarPeak = max(r.running.result.FarPeak, s.FarPeak)
	r.running.result.Growth.Bytes = max(r.running.result.Growth.Bytes, s.Growth)
	if r.cfg.Hooks.Microbatch != nil {
		r.cfg.Hooks.Microbatch(s)
	}
	r.ring.Put(s)
	return nil
}

// sampleAt returns the record of the memory log for the last action of a microbatch on the rank. The record is valid
// until the next call to sampleAt.
func (r *worker[T]) sampleAt(action schedule.Action) *memory.Sample {
	books, s := r.calls.Frames.EndInterval(), &r.running.sample
	*s = memory.Sample{
		Step: r.calls.Frames.Step, Rank: r.global, Replica: r.replica, Replicated: r.cfg.Replicas.count() > 1,
		Microbatch: r.calls.Frames.Index(r.running.plan.BatchIndex(action.Microbatch())), Stage: action.Stage(), Kind: action.Kind().String(),
		Live: books.Near.Live, Peak: books.Near.Peak, Reserved: books.Near.Reserved, Classes: books.Near.Classes, PeakClasses: books.Near.PeakClasses,
		Excess: books.Excess, Growth: books.Growth, Leak: books.Leak, Far: books.Far.Live, FarPeak: books.Far.Peak,
	}
	if near := &r.memory.levels.near; near.layout != nil {
		before := r.calls.Frames.Baseline()
		live, peak := near.endInterval()
		s.Planned, s.LivePlanned, s.PeakPlanned = true, before+live, before+peak
	}
	if far := &r.memory.levels.far; far.layout != nil {
		_, s.FarPlanned = far.endInterval()
	}
	if r.losses.objective >= 0 {
		s.Weight = r.losses.ledger.Weight(r.losses.objective)
	}
	if r.cfg.Hooks.Microbatch != nil {
		s.Time = r.running.clock.began.UnixNano() + int64(time.Since(r.running.clock.began))
		s.WaitData, r.running.clock.source = int64(r.running.clock.source), 0
	}
	return s
}

// abort releases everything that the step holds on the rank (L8).
func (r *worker[T]) abort() {
	if r.params.shared != nil {
		r.params.shared.Stop()
	}
	r.calls.GiveBack(r.links.received)
	r.calls.Abort()
}
