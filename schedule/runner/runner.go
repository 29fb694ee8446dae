package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/local"
)

// Runner runs steps on the ranks of this process. A single rank runs on the caller's goroutine;
// several ranks run on one goroutine each. Only one goroutine may use a Runner, and it runs one
// step at a time. Prepare and Statuses may be called on any goroutine.
type Runner[T any] struct {
	cfg     Config[T]
	workers []*worker[T]    // of the ranks of this process
	links   *local.Links[T] // between the ranks of this process; nil if there is only one, or Topology.Transport is set
	planner *planner
	seeds   []float32 // the losses' initial gradients, shared by all ranks
	running atomic.Bool
	next    atomic.Int64 // the number of the next training step
	closed  bool
	last    *update // of the latest training step that has an update; nil if none has, or a failed evaluation prevents the update
	used    bool    // an earlier step's update was applied
}

// New returns a runner for cfg. If cfg is invalid, the error lists every fault that Config.Validate finds.
func New[T any](cfg Config[T]) (*Runner[T], error) {
	if err := cfg.validate(cfg.complete()); err != nil {
		return nil, err
	}
	r := &Runner[T]{cfg: cfg, seeds: make([]float32, len(cfg.Losses))}
	r.setScale(cfg.ScaleExponent)
	r.next.Store(cfg.FirstStep)
	ends := cfg.Topology.Transport
	if total := cfg.total(); ends == nil && total > 1 {
		var err error
		r.links, err = local.New(local.Config[T]{Ranks: total, Capacity: cfg.Topology.Capacity, Copy: cfg.Topology.Copy, Sum: cfg.sum(), Stall: cfg.Topology.Stall})
		if err != nil {
			return nil, err
		}
		ends = func(rank int) transport.Transport[T] { return r.links.Rank(rank) }
	}
	parts := cfg.parts()
	r.planner = newPlanner(&r.cfg, parts)
	for i := range cfg.Spaces {
		rank, ranks := cfg.Topology.First+i, cfg.Topology.Ranks
		w := &worker[T]{
			calls: calls.Caller[T]{Rank: rank % ranks, Space: cfg.Spaces[i], Placement: r.cfg.Plan.Placement, Parts: parts},
			cfg:   &r.cfg, planner: r.planner, global: rank, replica: rank / ranks,
			links: links[T]{first: rank - rank%ranks},
		}
		if ends != nil {
			if w.links.transport = ends(rank); isNil(w.links.transport) {
				r.closeBuffers()
				return nil, fmt.Errorf("runner: Topology.Transport returned nil for rank %d", rank)
			}
			r.planner.passes.Capacity = w.links.transport.Capacity()
		}
		r.workers = append(r.workers, w)
		if err := w.resolve(r.seeds); err != nil {
			r.closeBuffers()
			return nil, fmt.Errorf("runner: %s: %w", w.name(), err)
		}
	}
	return r, nil
}

// SetScaleExponent sets Config.ScaleExponent for the following steps. The scale is fixed during a
// step (L10). It returns ErrBusy while a step runs, and an error if float32 cannot hold a loss's seed
// as a normal number.
func (r *Runner[T]) SetScaleExponent(exponent int) error {
	if r.running.Load() {
		return ErrBusy
	}
	if err := checkSeeds(r.cfg.Losses, exponent); err != nil {
		return err
	}
	r.setScale(exponent)
	return nil
}

func (r *Runner[T]) setScale(exponent int) {
	r.cfg.ScaleExponent = exponent
	for i, def := range r.cfg.Losses {
		r.seeds[i] = seed(def, exponent)
	}
}

// seed returns the initial gradient of a loss, including the scale; it is 0 for a metric.
func seed(def loss.Def, exponent int) float32 {
	coefficient := def.Coefficient
	if def.Objective {
		coefficient = 1
	}
	return float32(math.Ldexp(coefficient, exponent))
}

// checkSeeds returns an error unless the exponent is valid and the seed of every trained loss is a
// normal float32.
func checkSeeds(defs []loss.Def, exponent int) error {
	if exponent < -126 || exponent > 127 {
		return fmt.Errorf("runner: ScaleExponent is %d, not in [-126, 127]", exponent)
	}
	var faults []error
	for _, def := range defs {
		s := float64(seed(def, exponent))
		if trained := def.Objective || def.Coefficient != 0; trained && (math.IsInf(s, 0) || math.Abs(s) < 0x1p-126) {
			faults = append(faults, fmt.Errorf("runner: loss %q: its coefficient %v times 2^%d is not a normal float32",
				def.Name, def.Coefficient, exponent))
		}
	}
	return errors.Join(faults...)
}

// NextStep returns the number of the next training step.
func (r *Runner[T]) NextStep() int64 { return r.workers[0].step }

// Samples returns the latest records in the memory log of a rank of this process. The runner owns the
// ring; read it only between steps.
func (r *Runner[T]) Samples(rank int) *memory.Ring { return r.workers[rank-r.cfg.Topology.First].ring }

// Close releases the runner's resources: the cells of losses on devices (loss.DeviceCells), the buffers for
// reductions, and far memory. Between steps the runner has no goroutines. Close does not close the
// embedder's transport. It returns ErrBusy while a step runs.
func (r *Runner[T]) Close() error {
	if r.running.Load() {
		return ErrBusy
	}
	r.closed = true
	err := r.closeBuffers()
	for _, w := range r.workers {
		if w.peak.space != nil {
			w.peak.space.WatchPeak(false)
		}
		if w.memory.far != nil {
			err = errors.Join(err, w.memory.far.Close())
		}
	}
	if r.links == nil {
		return err
	}
	return errors.Join(err, r.links.Close())
}

// closeBuffers releases the cells of losses and the buffers for reductions.
func (r *Runner[T]) closeBuffers() (err error) {
	for _, w := range r.workers {
		err = errors.Join(err, w.losses.cells.close(w.calls.Space))
		if w.params.shared != nil {
			err = errors.Join(err, w.params.shared.Close())
		}
	}
	return err
}

// Step trains on m >= 1 microbatches, and returns when every rank of this process has finished. If
// there are replicas, they share the m microbatches, and each needs at least one. If there are other
// processes, all of them must call Step with the same m. If the step fails on any rank, Step returns an
// error, everything that the step held is released, and the next step works. The error is a *transport.StepError,
// unless the step could not begin. A panic continues with its original stack if this process has one rank. If it has
// several, Step panics with a *Panic.
func (r *Runner[T]) Step(ctx context.Context, m int, source Source[T]) (*Result, error) {
	return r.run(ctx, schedule.Training, m, source)
}

// Evaluate runs only the forward of m microbatches. It saves nothing, touches no gradients, and does
// not count as a step.
func (r *Runner[T]) Evaluate(ctx context.Context, m int, source Source[T]) (*Result, error) {
	return r.run(ctx, schedule.ForwardOnly, m, source)
}

// Prepare plans a training step of m microbatches and the memory of all ranks of this process, without
// running the step. It may be called on any goroutine, even while a step runs: if you prepare the next step then, Step
// finds its plan and memory plan ready. The runner keeps the plans of the latest steps, and the plans of one prepared
// step.
//
// Prepare takes only the order and the shapes from the source (InOrder, Shaped); source may be nil. It
// returns the memory plan of the first replica of this process, or nil if memory is not planned. It fails
// if a replica needs more than Memory.Budget. If Memory.Profile is a *layout.Profile, the memory plan is
// a *layout.Memory.
func (r *Runner[T]) Prepare(ctx context.Context, m int, source Source[T]) (planning.Plan, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	source, b, err := r.batch(schedule.Training, source, m)
	if err != nil {
		return nil, err
	}
	var first planning.Plan
	for i, w := range r.workers {
		plan, _, err := w.planFor(ctx, schedule.Training, &b, w.shaped(source))
		if err != nil {
			return nil, b.planError(err)
		}
		if i == 0 {
			first = plan.memory
		}
	}
	return first, nil
}

func (r *Runner[T]) run(ctx context.Context, mode schedule.Mode, m int, source Source[T]) (result *Result, err error) {
	if !r.running.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	defer r.running.Store(false)
	switch {
	case ctx == nil:
		return nil, errNoContext
	case r.closed:
		return nil, ErrClosed
	case r.cfg.dry != nil:
		return nil, errDry
	case mode == schedule.Training && len(r.workers[0].params.owners) > 0 && r.workers[0].losses.objective < 0:
		return nil, ErrNoObjective
	}
	if mode == schedule.Training && r.last != nil && r.used && !r.last.taken && !r.last.refused {
		return nil, ErrUnused
	}
	source, b, err := r.batch(mode, source, m)
	if err == nil {
		err = r.share(source, &b)
	}
	if err != nil {
		return nil, err
	}
	if mode == schedule.Training { // the gradients now belong to this step
		r.next.Store(r.workers[0].step + 1) // for Prepare
		defer func() { r.next.Store(r.workers[0].step) }()
		if r.last != nil {
			r.used, r.last.stale, r.last.unchanged = r.used || r.last.taken, true, nil
		}
		defer func() {
			if result != nil && result.factor != 0 {
				r.last = &update{running: &r.running, unchanged: r.unchanged, gather: r.gatherWeights}
				result.update = r.last
			}
		}()
	} else if last := r.last; last != nil && !last.taken && r.gathersWeights() {
		defer func() {
			if err != nil { // the transport stays aborted until the next call begins
				r.last, last.unchanged = nil, func() error {
					return fmt.Errorf("runner: an evaluation has failed since, and replicas cannot exchange the new weights: repeat the step: %w", err)
				}
			}
		}()
	}
	if len(r.workers) == 1 {
		return r.workers[0].run(ctx, mode, &b)
	}
	return r.runRanks(ctx, mode, &b)
}

// runRanks runs a step on all ranks of this process, each on its own goroutine.
func (r *Runner[T]) runRanks(ctx context.Context, mode schedule.Mode, b *batch) (*Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	endings := make([]ending, len(r.workers))
	var ranks sync.WaitGroup
	for i, w := range r.workers {
		ranks.Go(func() {
			e := &endings[i]
			defer func() {
				if value := recover(); value != nil {
					e.panicked = &Panic{Rank: w.global, Value: value, Stack: debug.Stack()}
				}
				if e.result == nil { // the other ranks' stages must stop, too
					cancel(r.failure(e.err))
				}
			}()
			e.result, e.err = w.run(ctx, mode, b)
			e.returned = true
		})
	}
	ranks.Wait()
	return r.outcome(endings, r.failure(context.Cause(ctx)))
}

// Statuses returns the current activity of each rank, if the runner links the ranks itself. It
// returns nil if there is only one rank, or Topology.Transport is set. Any goroutine may call it.
func (r *Runner[T]) Statuses() []transport.RankStatus {
	if r.links == nil {
		return nil
	}
	return r.links.Statuses()
}

// failure returns the error with which the links ended the step, or first if there are no links.
func (r *Runner[T]) failure(first error) error {
	if r.links != nil {
		return r.links.Failure()
	}
	return first
}

// Panic is the value with which Step panics if one of several ranks has panicked.
type Panic struct {
	Rank  int
	Value any    // the value of the rank's panic
	Stack []byte // the stack of the rank's goroutine
}

// Error returns the value and the stack; the runtime prints them.
func (p *Panic) Error() string {
	return fmt.Sprintf("runner: rank %d panicked: %v\n\n%s", p.Rank, p.Value, p.Stack)
}

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// ending describes how a step ended on one rank.
type ending struct {
	result   *Result
	err      error
	returned bool
	panicked *Panic
}

// outcome combines the endings of all ranks into the first that applies: a rank's panic, the end of a
// rank's goroutine, the first error, or the result.
func (r *Runner[T]) outcome(endings []ending, cause error) (*Result, error) {
	for i := range endings {
		if endings[i].panicked != nil {
			panic(endings[i].panicked)
		}
	}
	for i := range endings {
		if !endings[i].returned {
			runtime.Goexit()
		}
	}
	first := endings[0].err
	for i := range endings {
		err := endings[i].err
		if err == nil {
			continue
		}
		if err == cause {
			return nil, err
		}
		if first == nil || errors.Is(err, cause) && !errors.Is(first, cause) {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return endings[0].result, nil
}
