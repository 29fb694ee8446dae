package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
)

// Runner runs steps on one rank. It is for one goroutine, one step at a time.
type Runner[T any] struct {
	cfg       Config[T]
	placement schedule.Placement
	watcher   Watcher        // nil where the transport is none
	planned   memory.Planned // nil where the memory of steps is not planned
	copier    Copier[T]      // nil where Gradients is none
	stages    []stage[T]
	seeds     []float32
	objective int // index of the loss, -1 for none
	tied      []tie
	owners    []use // one for each parameter that trains, on any rank: its first use

	planner  *planner
	context  *frames.Frames[T]
	ledger   *loss.Ledger
	ring     *memory.Ring
	programs [2]*program // the last one of each mode
	step     int64
	running  bool
	closed   bool

	// Of the running step.
	plan     *program
	source   Source[T]
	action   schedule.Action // that runs; 0 at step end
	pulled   int
	expected frames.Counts // what the plan says is alive
	sample   memory.Sample
	result   *Result
	clock    clock
	levels   levels
	peak     peak
	lent     []T         // what a transfer borrows, within its call
	received []T         // what a transfer has brought, until it is handed over
	squares  []float64   // by owner: the sum of squares of its gradient
	report   report      // at step end, of one rank after the other
	record   loss.Record // of the losses of this step
	other    loss.Record
	bytes    []byte
}

// stage is a stage with what the runner has resolved about it, and scratch for
// one call.
type stage[T any] struct {
	stages.Stage[T]
	spec           stages.Spec
	split          stages.SplitBackward[T] // nil where the stage cannot
	quantizer      stages.Quantizer[T]     // nil where the stage computes on its weights themselves
	params         []frames.Use[T]
	own            bool // it is on this rank
	before, after  int  // ranks of the stages beside it, -1 where there is none
	in, out        []T
	gradOut        []T
	gradIn         []T
	forward        []T // copies of its weights, until the context has taken them over
	backward       []T
	noGradIn       uint64
	noGradOut      uint64
	lastCall       schedule.Kind // the stage's last backward action where the plan does not split
	wantsGradient  bool          // something before it trains
	gradientWanted bool          // it trains, or something before it does
}

// use is one use of a parameter: a stage and the parameter's index there.
type use struct{ stage, param int }

// tie is a further use of a parameter and its first use, the owner.
type tie struct{ owner, use use }

// searchNodes is the work that a layout is worth where Config.Search says nothing.
const searchNodes = 200_000

// New returns a runner for cfg, or every fault of cfg at once.
func New[T any](cfg Config[T]) (*Runner[T], error) {
	cfg.complete()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Plan == nil {
		cfg.Plan = schedule.DepthFirst
	}
	if cfg.Ring == 0 {
		cfg.Ring = 256
	}
	if cfg.Search.Nodes == 0 && cfg.Search.Time == 0 {
		cfg.Search.Nodes = searchNodes
	}
	r := &Runner[T]{
		cfg:       cfg,
		placement: cfg.placement(),
		stages:    make([]stage[T], len(cfg.Stages)),
		seeds:     make([]float32, len(cfg.Losses)),
		ring:      memory.NewRing(cfg.Ring),
		step:      cfg.FirstStep,
		objective: slices.IndexFunc(cfg.Losses, func(d loss.Def) bool { return d.Objective }),
	}
	r.watcher, _ = cfg.Transport.(Watcher)
	r.copier, _ = cfg.Gradients.(Copier[T])
	if cfg.Templates != nil && !cfg.TolerateLeaks {
		r.planned, _ = cfg.Space.(memory.Planned)
	}
	if cfg.Hooks.Peak != nil {
		r.peak.space, _ = cfg.Space.(memory.PeakWatched)
	}
	if err := r.SetScaleExponent(cfg.ScaleExponent); err != nil {
		return nil, err
	}
	r.planner = &planner{
		rule: cfg.Plan, unchecked: cfg.Unchecked, costs: cfg.Costs,
		params:    schedule.Params{Placement: r.placement, Group: cfg.Group, Cap: cfg.Cap, Slices: cfg.Slices, Frozen: make([]bool, len(cfg.Stages))},
		passes:    lower.Passes{Facts: make([]schedule.Facts, len(cfg.Stages)), Parts: len(cfg.Parts), Quantizing: cfg.Quantizing},
		templates: cfg.Templates, lookAhead: cfg.LookAhead, budget: cfg.Budget, search: cfg.Search,
	}
	if cfg.Transport != nil {
		r.planner.passes.Capacity = cfg.Transport.Capacity()
	}
	layouts := make([]*frames.Layout[T], len(cfg.Stages))
	for s := range cfg.Stages {
		layouts[s] = r.resolve(s)
	}
	ports := 1 // for a gradient at step end
	for _, st := range r.stages {
		ports = max(ports, len(st.in), len(st.out))
	}
	r.received = make([]T, ports)
	r.resolveGradients()
	for s, layout := range layouts {
		if layout != nil {
			layout.InputGradient = r.stages[s].wantsGradient
		}
	}
	r.resolveTies()

	var err error
	if r.ledger, err = loss.NewLedger(cfg.Losses); err != nil {
		return nil, err
	}
	r.context, err = frames.New(frames.Config[T]{
		Space: cfg.Space, Rank: cfg.Rank, Seed: cfg.Seed, Parts: cfg.Parts, Replica: cfg.Replica, Replicas: cfg.Replicas,
		Losses: r.ledger, Seeds: r.seeds, Stages: layouts, Zero: r.zero,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// resolve asks a stage for all that it declares. It returns what the context must
// know, nil for a stage of another rank.
func (r *Runner[T]) resolve(s int) *frames.Layout[T] {
	st := &r.stages[s]
	st.Stage = r.cfg.Stages[s]
	st.spec = st.Stage.Spec()
	st.split, _ = st.Stage.(stages.SplitBackward[T])
	if st.spec.Quantizes() {
		st.quantizer, _ = stages.As[stages.Quantizer[T]](st.Stage)
	}
	st.params = stages.Params(st.Stage)
	st.own = r.placement.Rank[s] == r.cfg.Rank
	st.before, st.after = -1, -1
	if !r.placement.First(s) {
		st.before = r.placement.Rank[s-1]
	}
	if !r.placement.Last(s) {
		st.after = r.placement.Rank[s+1]
	}
	for i, port := range st.spec.Inputs {
		if port.NoGrad {
			st.noGradIn |= 1 << i
		}
	}
	for i, port := range st.spec.Outputs {
		if port.NoGrad {
			st.noGradOut |= 1 << i
		}
	}
	r.resolveFacts(s)
	if !st.own {
		return nil
	}
	st.in = make([]T, len(st.spec.Inputs))
	st.gradIn = make([]T, len(st.spec.Inputs))
	st.out = make([]T, len(st.spec.Outputs))
	st.gradOut = make([]T, len(st.spec.Outputs))
	st.forward = make([]T, len(st.spec.ForwardWeights))
	st.backward = make([]T, len(st.spec.BackwardWeights))
	layout := &frames.Layout[T]{
		Name: st.spec.Name, Inputs: len(st.spec.Inputs), Outputs: len(st.spec.Outputs),
		Slots: st.spec.Slots, Params: st.params, Recomputes: st.spec.Recomputes,
		ForwardWeights: st.spec.ForwardWeights, BackwardWeights: st.spec.BackwardWeights, InputWeights: st.spec.InputWeights,
	}
	for _, read := range st.spec.Reads {
		layout.Reads = append(layout.Reads, frames.Read{Part: slices.Index(r.cfg.Parts, read.Part), At: read.At})
	}
	for _, name := range st.spec.Losses {
		layout.Losses = append(layout.Losses, lossIndex(r.cfg.Losses, name))
	}
	return layout
}

// resolveFacts writes down what the passes must know of a stage.
func (r *Runner[T]) resolveFacts(s int) {
	st := &r.stages[s]
	r.planner.params.Frozen[s] = st.spec.Frozen
	facts := &r.planner.passes.Facts[s]
	facts.Frozen, facts.Recomputes, facts.Split = st.spec.Frozen, st.spec.Recomputes, st.split != nil
	facts.Quantizes = st.spec.Quantizes()
	for _, read := range st.spec.Reads {
		bit := uint64(1) << slices.Index(r.cfg.Parts, read.Part)
		if read.At == 0 || read.At&frames.AtForward != 0 {
			facts.Reads[schedule.F] |= bit
		}
		if read.At&frames.AtBackward != 0 {
			facts.Reads[schedule.B] |= bit
			facts.Reads[schedule.I] |= bit
		}
		if read.At&frames.AtWeight != 0 {
			facts.Reads[schedule.B] |= bit
			facts.Reads[schedule.W] |= bit
			if st.split == nil { // as I it runs its whole backward
				facts.Reads[schedule.I] |= bit
			}
		}
	}
}

// resolveGradients finds out for each stage whether it, or one before it in its copy
// of the model, trains.
func (r *Runner[T]) resolveGradients() {
	trains := false
	for s := range r.stages {
		st := &r.stages[s]
		if r.placement.First(s) {
			trains = false
		}
		st.wantsGradient = trains
		trains = trains || !st.spec.Frozen
		st.gradientWanted = trains
		if st.lastCall = schedule.B; st.spec.Frozen {
			st.lastCall = schedule.I
		}
	}
}

// SetScaleExponent sets Config.ScaleExponent for the steps from the next one on:
// the scale is fixed for a step (L10). Not while a step runs.
func (r *Runner[T]) SetScaleExponent(exponent int) error {
	if r.running {
		return ErrBusy
	}
	if err := checkSeeds(r.cfg.Losses, exponent); err != nil {
		return err
	}
	r.cfg.ScaleExponent = exponent
	for i, def := range r.cfg.Losses {
		r.seeds[i] = seed(def, exponent)
	}
	return nil
}

// seed returns what the gradient of a loss starts with: 0 for a metric.
func seed(def loss.Def, exponent int) float32 {
	coefficient := def.Coefficient
	if def.Objective {
		coefficient = 1
	}
	return float32(math.Ldexp(coefficient, exponent))
}

// checkSeeds reports whether every trained loss has a seed that float32 can hold.
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

// Step trains on m microbatches, m >= 1. On several ranks every rank calls it, with
// the same m. The error is an *Error for what went wrong within the step, on whatever
// rank; then everything the step held is released, and the next step works.
func (r *Runner[T]) Step(ctx context.Context, m int, source Source[T]) (*Result, error) {
	return r.run(ctx, schedule.Training, m, source)
}

// Evaluate runs m microbatches forward only. Nothing is saved, no gradient is
// touched, and the step counter stays.
func (r *Runner[T]) Evaluate(ctx context.Context, m int, source Source[T]) (*Result, error) {
	return r.run(ctx, schedule.ForwardOnly, m, source)
}

// Samples returns the last records of the memory log, the runner's own ring.
func (r *Runner[T]) Samples() *memory.Ring { return r.ring }

// NextStep returns the number of the next training step.
func (r *Runner[T]) NextStep() int64 { return r.step }

// Close ends the runner. It holds nothing between steps.
func (r *Runner[T]) Close() error {
	if r.running {
		return ErrBusy
	}
	r.closed = true
	if r.peak.space != nil {
		r.peak.space.WatchPeak(false)
	}
	return nil
}

// ready reports why a step cannot begin.
func (r *Runner[T]) ready(mode schedule.Mode, source Source[T]) error {
	switch {
	case r.closed:
		return ErrClosed
	case r.running:
		return ErrBusy
	case source == nil:
		return errors.New("runner: the source is nil")
	case mode == schedule.Training && len(r.owners) > 0 && r.objective < 0:
		return ErrNoObjective
	}
	return nil
}

func (r *Runner[T]) run(ctx context.Context, mode schedule.Mode, m int, source Source[T]) (*Result, error) {
	if err := r.ready(mode, source); err != nil {
		return nil, err
	}
	r.running = true
	defer r.end()
	if r.cfg.Transport != nil {
		if err := r.cfg.Transport.Begin(ctx); err != nil {
			return nil, fmt.Errorf("runner: rank %d begins a step: %w", r.cfg.Rank, err)
		}
	}
	over, begun := false, false
	r.action = 0
	defer func() {
		if over {
			return
		}
		r.leave(r.fault(r.action, errNoReturn)) // a panic on its way through, or the end of the goroutine
		if begun {
			r.abort()
		}
	}()
	plan, err := r.planFor(ctx, mode, m, source)
	if err != nil {
		err = fmt.Errorf("runner: a plan for %d microbatches: %w", m, err)
	} else {
		err = r.lay(plan)
	}
	if err != nil {
		over = true
		r.leave(err)
		return nil, err
	}
	begun = true
	r.begin(plan, source)
	if err = r.program(ctx); err == nil {
		if mode == schedule.Training { // on every rank, whatever becomes of this one after the exchange (L8)
			r.step++
		}
		err = r.unlay()
	}
	if err != nil {
		err = r.foreign(r.action, err)
		r.leave(err)
		if r.cfg.Hooks.Failed != nil {
			r.cfg.Hooks.Failed(err, r.context.Owners())
		}
		over = true
		r.abort()
		return nil, err
	}
	over = true
	r.tellPeak()
	return r.result, nil
}

// errNoReturn ends the step on the other ranks where a call of this one did not
// return.
var errNoReturn = errors.New("it did not return: it panicked, or ended its goroutine")

// leave ends the step on the other ranks, and returns when none of them reads what
// this one has sent.
func (r *Runner[T]) leave(cause error) {
	if r.cfg.Transport != nil {
		r.cfg.Transport.Abort(cause)
	}
}

// planFor returns this rank's part of a plan.
func (r *Runner[T]) planFor(ctx context.Context, mode schedule.Mode, m int, source Source[T]) (*program, error) {
	plan, err := r.planner.plan(mode, m)
	if err == nil && r.plansMemory(mode) {
		plan, err = r.planner.withMemory(ctx, plan, shapesOf(source, plan.Plan))
	}
	if err != nil {
		return nil, err
	}
	if r.programs[mode] == nil || r.programs[mode].planned != plan {
		r.programs[mode] = newProgram(plan, r.cfg.Rank, r.cfg.LookAhead)
	}
	return r.programs[mode], nil
}

// zero sets a gradient to zero before the first contribution of a step is added.
func (r *Runner[T]) zero(g T) error { return r.cfg.Gradients.Zero(g) }

// fault gives an error its place.
func (r *Runner[T]) fault(action schedule.Action, err error) error {
	e := &Error{Rank: r.cfg.Rank, Action: action, Err: err}
	if action.Kind() != schedule.None {
		e.Name, e.Item = r.stages[action.Stage()].spec.Name, r.plan.extent.Item(action.Microbatch())
	}
	return e
}

// foreign gives an error its place, but for one that has one: that of another rank,
// which a transport or the context of a group has brought here.
func (r *Runner[T]) foreign(action schedule.Action, err error) error {
	if placed, ok := err.(*Error); ok {
		return placed
	}
	return r.fault(action, r.explain(err))
}
