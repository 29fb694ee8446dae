package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/engine/far"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/schedule/runner/internal/replicas"
	"github.com/weir-ml/weir/transport"
)

// worker runs the steps of one rank.
type worker[T any] struct {
	calls.Caller[T]
	cfg     *Config[T] // the runner's configuration
	global  int        // the rank, counted over all replicas; Rank is counted within the pipeline
	replica int        // the replica to which the rank belongs
	links   links[T]
	params  params[T]
	losses  losses[T]
	reports reports

	unordered memory.Unordered[T] // nil if planned is nil, or the space does not support it
	planned   memory.Planned      // nil if the memory of steps is not planned
	far       *far.Memory[T]      // nil until a step offloads
	planner   *planner
	ring      *memory.Ring
	programs  [2]*program // the last program of each mode
	step      int64

	// The running step.
	plan         *program
	m            int             // number of microbatches, over all replicas
	action       schedule.Action // the running action; 0 at step end
	pulled       int             // number of entries pulled so far
	expected     frames.Counts   // the plan's counts of live buffers
	sample       memory.Sample
	result       *Result
	clock        clock
	levels       levels
	sourceCheck  sourceCheck
	peak         peak
	entryParts   []int // scratch: the parts of an entry in the order of their plan
	entryBuffers []T   // scratch: their buffers
}

// resolve derives the fields that do not change between steps from the configuration.
func (r *worker[T]) resolve(seeds []float32) error {
	cfg := r.cfg
	r.ring = memory.NewRing(cfg.Memory.Ring)
	r.step = cfg.FirstStep
	if cfg.Memory.Profile != nil && !cfg.Memory.TolerateLeaks {
		if r.planned, _ = r.Space.(memory.Planned); r.planned != nil {
			r.unordered, _ = r.Space.(memory.Unordered[T])
		}
	}
	if cfg.Hooks.Peak != nil {
		r.peak.space, _ = r.Space.(memory.PeakWatched)
	}
	declared := r.Resolve(cfg.stagesOf(r.replica), func(name string) int { return lossIndex(cfg.Losses, name) })
	r.links.open(r.Stages)
	grads := cfg.gradients(r.Space)
	r.params.open(&r.Caller, grads, cfg.Replicas.Shard)
	err := r.losses.open(cfg.Losses, r.Space, declared)
	if err != nil {
		return err
	}
	var poison func(T) error
	if able, ok := grads.(interface{ Poison(T) error }); ok {
		poison = able.Poison
	}
	r.Frames = frames.New(frames.Config[T]{
		Space: r.Space, Rank: r.global, Seed: cfg.Seed, Parts: r.Parts, Replica: r.replica, Replicas: cfg.Replicas.count(),
		Losses: r.losses.ledger, Cells: r.losses.cells.handle, Seeds: seeds, Stages: declared, Zero: r.params.zero, Poison: poison,
	})
	r.params.shared, err = replicas.New(replicas.Config[T]{
		Replica: r.replica, Replicas: cfg.Replicas.count(), Rank: r.Rank, Placement: r.Placement, Level: r.params.level,
		Space: r.Space, Transport: r.links.transport, Gradients: grads, Frames: r.Frames, Stages: r.Stages, Ties: r.params.ties,
	})
	return err
}

// run runs a step on the rank, with the rank's source. If the step fails here, run also ends it on
// the other ranks, even if a call on this rank panics or ends its goroutine.
func (r *worker[T]) run(ctx context.Context, mode schedule.Mode, m int) (*Result, error) {
	defer r.end()
	ended := false                     // the step has ended on this rank
	joined := r.links.transport == nil // the rank has joined the others in the step
	begun := false                     // the frames may hold buffers of the step
	r.action = 0
	defer func() {
		if ended {
			return
		}
		if !joined && r.links.transport.Begin(ctx, nil) != nil { // joins the others' step, to end it
			return
		}
		r.leave(r.fault(r.action, errNoReturn)) // a panic in progress, or the end of the goroutine
		if begun {
			r.abort()
		}
	}()
	r.m = m
	plan, err := r.planFor(ctx, mode, m)
	if r.links.transport != nil {
		if err != nil { // an empty hello joins the others' step, to end it
			r.reports.hello = r.reports.hello[:0]
		}
		joined = true
		if began := r.links.transport.Begin(ctx, r.reports.hello); began != nil {
			ended = true
			return nil, fmt.Errorf("runner: beginning a step on %s: %w", r.name(), cmp.Or(err, began))
		}
	}
	if err != nil {
		err = fmt.Errorf("runner: a plan for %d microbatches: %w", m, err)
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
	return r.result, nil
}

// failed ends a step that has begun, on all ranks, and returns err with its location. It sets ended
// after the hook: the deferred function of run ends the step if the hook panics.
func (r *worker[T]) failed(err error, ended *bool) error {
	err = r.locate(r.action, err)
	r.leave(err)
	if r.cfg.Hooks.Failed != nil {
		r.cfg.Hooks.Failed(r.global, err, r.Frames.Owners())
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

// planFor returns the rank's program for its replica's share of m microbatches, and sets r.reports.hello,
// which the ranks compare when they begin the step.
func (r *worker[T]) planFor(ctx context.Context, mode schedule.Mode, m int) (*program, error) {
	share, err := r.planner.planShare(mode, m, r.replica)
	plan := share.planned
	if err == nil && (r.plansMemory(plan) || r.cfg.Memory.Budget > 0) {
		plan, err = r.planner.withMemory(ctx, share, r.replica, r.shapes(plan.Plan))
	}
	if err != nil {
		return nil, err
	}
	if r.links.transport != nil {
		r.reports.hello = share.appendHello(r.reports.hello[:0], r.step, m, r.links.transport.Capacity(), r.params.level)
	}
	if r.programs[mode] == nil || r.programs[mode].planned != plan {
		r.programs[mode] = newProgram(plan, r.Rank, r.cfg.Plan.LookAhead)
	}
	return r.programs[mode], nil
}

// name returns the rank's name, including its replica if there are several.
func (r *worker[T]) name() string { return transport.RankName(r.global, r.cfg.ranksPerReplica()) }

// fault adds its location to an error.
func (r *worker[T]) fault(action schedule.Action, err error) error {
	e := &transport.StepError{Rank: r.global, Ranks: r.cfg.ranksPerReplica(), Action: action, Err: err}
	if action.Kind() != schedule.None {
		e.Name, e.Microbatch = r.Stages[action.Stage()].Spec.Name, r.Frames.Index(r.plan.Item(action.Microbatch()))
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
