package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/schedule/runner/internal/replicas"
	"github.com/weir-ml/weir/transport"
)

// worker runs the steps of one rank.
type worker[T any] struct {
	cfg     *Config[T] // the runner's configuration
	planner *planner   // shared by the ranks of the process
	global  int        // the rank, counted over all replicas; calls.Rank is counted within the pipeline
	replica int        // the replica to which the rank belongs
	calls   calls.Caller[T]
	links   links[T]
	params  params[T]
	losses  losses[T]
	memory  stepMemory[T]
	peak    peak
	ring    *memory.Ring
	reports reports
	audit   *audit // nil if Config.Audit is 0
	step    int64
	running running
}

// running is the state of the running step.
type running struct {
	plan        *program
	batch       *batch
	action      schedule.Action // the running action; 0 at step end
	pulled      int             // number of entries pulled so far
	expected    frames.Counts   // the plan's counts of live buffers
	sample      memory.Sample
	result      *Result
	clock       clock
	sourceCheck sourceCheck
	audit       *audit // nil if the step is not audited
}

// resolve derives the fields that do not change between steps from the configuration.
func (r *worker[T]) resolve(seeds []float32) error {
	cfg := r.cfg
	r.ring = memory.NewRing(cfg.Memory.Ring)
	r.step = cfg.FirstStep
	if cfg.Memory.Profile != nil && !cfg.Memory.TolerateLeaks {
		if r.memory.planned, _ = r.calls.Space.(memory.Planned); r.memory.planned != nil {
			r.memory.unordered, _ = r.calls.Space.(memory.Reorderer[T])
		}
	}
	if cfg.Hooks.Peak != nil {
		r.peak.space, _ = r.calls.Space.(memory.PeakWatched)
	}
	declared := r.calls.Resolve(cfg.stagesOf(r.replica), func(name string) int { return lossIndex(cfg.Losses, name) })
	r.links.open(r.calls.Stages)
	grads := cfg.gradients(r.calls.Space)
	r.params.open(&r.calls, grads, cfg.Replicas.Shard)
	err := r.losses.open(cfg.Losses, r.calls.Space, declared)
	if err != nil {
		return err
	}
	if cfg.Audit > 0 {
		r.audit = newAudit(&r.calls.Placement)
		r.audit.sums = make([]uint64, r.audit.sizes[r.calls.Rank])
		if err = r.auditWeights(false); err != nil { // better now than in the first audited step
			return fmt.Errorf("the space has no bytes to sum, which Audit needs: %w", err)
		}
	}
	var poison func(T) error
	if able, ok := grads.(interface{ Poison(T) error }); ok {
		poison = able.Poison
	}
	r.calls.Frames = frames.New(frames.Config[T]{
		Space: r.calls.Space, Rank: r.global, Seed: cfg.Seed, Parts: r.calls.Parts, Replica: r.replica, Replicas: cfg.Replicas.count(),
		Losses: r.losses.ledger, Cells: r.losses.cells.handle, Seeds: seeds, Stages: declared, Zero: r.params.zero, Poison: poison,
	})
	r.params.shared, err = replicas.New(replicas.Config[T]{
		Replica: r.replica, Replicas: cfg.Replicas.count(), Rank: r.calls.Rank, Placement: r.calls.Placement, Level: r.params.level,
		Space: r.calls.Space, Transport: r.links.transport, Gradients: grads, Frames: r.calls.Frames, Stages: r.calls.Stages, Ties: r.params.ties,
	})
	return err
}

// run runs a step on the rank, with the rank's source. If the step fails here, run also ends it on
// the other ranks, even if a call on this rank panics or ends its goroutine.
func (r *worker[T]) run(ctx context.Context, mode schedule.Mode, b *batch) (*Result, error) {
	defer r.end()
	ended := false                     // the step has ended on this rank
	joined := r.links.transport == nil // the rank has joined the others in the step
	begun := false                     // the frames may hold buffers of the step
	r.running.action = 0
	// A call on this rank may panic or end its goroutine. This function then ends the step on all ranks,
	// which it must join first, and releases the buffers that the frames hold.
	defer func() {
		if ended {
			return
		}
		if !joined && r.links.transport.Begin(ctx, nil) != nil { // joins the others' step, to end it
			return
		}
		r.leave(r.fault(r.running.action, errNoReturn)) // a panic in progress, or the end of the goroutine
		if begun {
			r.abort()
		}
	}()
	r.running.batch = b
	shaped := r.shaped(r.calls.Source)
	plan, hash, err := r.planFor(ctx, mode, b, shaped)
	if err == nil && b.repeat.on {
		err = r.checkAudited(plan, b.repeat.extra(r.replica))
	}
	if r.links.transport != nil {
		r.reports.hello = r.reports.hello[:0] // an empty hello joins the others' step, to end it
		if err == nil {
			r.reports.hello = b.appendHello(r.reports.hello, plan.Plan, hash, r.step, r.links.transport.Capacity(), r.params.level, shaped)
		}
		joined = true
		if joinErr := r.links.transport.Begin(ctx, r.reports.hello); joinErr != nil {
			ended = true
			return nil, fmt.Errorf("runner: beginning a step on %s: %w", r.name(), cmp.Or(err, joinErr))
		}
	}
	if err != nil {
		err = b.planError(err)
	} else if err = r.checkSource(ctx, plan, &begun); err != nil {
		return nil, r.failed(err, &ended)
	} else {
		err = r.lay(plan)
	}
	if err != nil {
		ended = true
		r.leave(err)
		return nil, err
	}
	begun = true
	r.begin(plan)
	if err = r.runProgram(ctx); err == nil {
		if mode == schedule.Training { // advances on every rank, even if this rank fails after the exchange (L8)
			r.step++
		}
		err = r.unlay()
	}
	if err != nil {
		return nil, r.failed(err, &ended)
	}
	ended = true
	r.reportPeak()
	return r.running.result, nil
}

// failed ends a step that has begun, on all ranks, and returns err with its location. It sets ended
// after the hook: the deferred function of run ends the step if the hook panics.
func (r *worker[T]) failed(err error, ended *bool) error {
	err = r.locate(r.running.action, err)
	r.leave(err)
	if r.cfg.Hooks.Failed != nil {
		r.cfg.Hooks.Failed(r.global, err, r.calls.Frames.Owners())
	}
	*ended = true
	r.abort()
	return err
}

// errNoReturn ends the step on the other ranks if a call of this rank did not return.
var errNoReturn = errors.New("it did not return: it panicked, or ended its goroutine")

// leave ends the step on the other ranks, and returns once none of them reads this rank's tensors any
// longer.
func (r *worker[T]) leave(cause error) {
	if r.links.transport != nil {
		r.links.transport.Abort(cause)
	}
}

// planFor returns the rank's program for its replica's share of a batch, and a hash of the plans of all
// replicas. If the step plans memory or has a budget, the program has memory for the shapes of the
// microbatches. shaped is nil if the shapes are not known.
func (r *worker[T]) planFor(ctx context.Context, mode schedule.Mode, b *batch, shaped Shaped) (*program, fnvSum, error) {
	plan, hash, err := r.planner.planShare(ctx, mode, b, r.replica)
	if err == nil && (r.plansMemory(plan) || r.cfg.Memory.Budget > 0) {
		plan, err = r.planner.keep(ctx, request{mode, plan.Microbatches, plan, r.shapes(plan.Plan, b, shaped)})
	}
	if err != nil {
		return nil, 0, err
	}
	return plan.program(r.calls.Rank, r.cfg.Plan.LookAhead), hash, nil
}

// name returns the rank's name, including its replica if there are several.
func (r *worker[T]) name() string { return transport.RankName(r.global, r.cfg.ranksPerReplica()) }

// fault adds its location to an error.
func (r *worker[T]) fault(action schedule.Action, err error) error {
	e := &transport.StepError{Rank: r.global, Ranks: r.cfg.ranksPerReplica(), Action: action, Err: err}
	if action.Kind() != schedule.None {
		e.Name, e.Microbatch = r.calls.Stages[action.Stage()].Spec.Name, r.calls.Frames.Index(r.running.plan.BatchIndex(action.Microbatch()))
	}
	return e
}

// locate explains an error and adds its location, unless the error already has one. The error may be
// another rank's, passed on by a transport or by the ranks' context.
func (r *worker[T]) locate(action schedule.Action, err error) error {
	if placed, ok := err.(*transport.StepError); ok {
		return placed
	}
	return r.fault(action, r.explain(err))
}
