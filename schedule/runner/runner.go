package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// Runner runs steps on one rank. It is for one goroutine, one step at a time.
type Runner[T any] struct {
	cfg       Config[T]
	stages    []stage[T]
	frozen    []bool
	facts     []schedule.Facts
	seeds     []float32
	first     int // the first stage that trains; stages before it have no backward
	objective int // index of the loss, -1 for none
	tied      []tie
	owners    []use // one for each parameter that trains: its first use

	context  *batchctx.Context[T]
	ledger   *loss.Ledger
	ring     *memory.Ring
	programs [2]*program // the last plan of each mode
	step     int64
	running  bool
	closed   bool

	// Of the running step.
	plan     *program
	source   Source[T]
	pulled   int
	expected batchctx.Counts // what the plan says is alive
	sample   memory.Sample
	result   *Result
	began    time.Time     // with the hook of samples only: what is off reads no clock
	waited   time.Duration // in the source since the last sample, likewise
}

// stage is a stage with what the runner has resolved about it, and scratch for
// one call.
type stage[T any] struct {
	stages.Stage[T]
	spec           stages.Spec
	split          stages.SplitBackward[T] // nil where the stage cannot
	params         []batchctx.Param[T]
	in, out        []T
	gradOut        []T
	gradIn         []T
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

// New returns a runner for cfg, or every fault of cfg at once.
func New[T any](cfg Config[T]) (*Runner[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Plan == nil {
		cfg.Plan = schedule.DepthFirst
	}
	if cfg.Ring == 0 {
		cfg.Ring = 256
	}
	r := &Runner[T]{
		cfg:       cfg,
		stages:    make([]stage[T], len(cfg.Stages)),
		frozen:    make([]bool, len(cfg.Stages)),
		facts:     make([]schedule.Facts, len(cfg.Stages)),
		seeds:     make([]float32, len(cfg.Losses)),
		ring:      memory.NewRing(cfg.Ring),
		step:      cfg.FirstStep,
		objective: -1,
	}
	for i := range cfg.Losses {
		if cfg.Losses[i].Objective {
			r.objective = i
		}
	}
	if err := r.SetScaleExponent(cfg.ScaleExponent); err != nil {
		return nil, err
	}
	layouts := make([]*batchctx.Layout[T], len(cfg.Stages))
	for s := range cfg.Stages {
		layouts[s] = r.resolve(s)
	}
	r.first = len(r.stages)
	for s := range r.stages {
		st := &r.stages[s]
		st.wantsGradient = s > r.first
		if !r.frozen[s] && r.first == len(r.stages) {
			r.first = s
		}
		st.gradientWanted = s >= r.first
		if st.lastCall = schedule.B; r.frozen[s] {
			st.lastCall = schedule.I
		}
	}
	r.resolveTies()

	var err error
	if r.ledger, err = loss.NewLedger(cfg.Losses); err != nil {
		return nil, err
	}
	r.context, err = batchctx.New(batchctx.Config[T]{
		Space: cfg.Space, Seed: cfg.Seed, Parts: cfg.Parts, Replica: cfg.Replica, Replicas: cfg.Replicas,
		Losses: r.ledger, Seeds: r.seeds, Stages: layouts,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// resolve asks a stage for all that it declares.
func (r *Runner[T]) resolve(s int) *batchctx.Layout[T] {
	st := &r.stages[s]
	st.Stage = r.cfg.Stages[s]
	st.spec = st.Stage.Spec()
	st.split, _ = st.Stage.(stages.SplitBackward[T])
	st.params = stages.Params(st.Stage)
	st.in = make([]T, len(st.spec.Inputs))
	st.gradIn = make([]T, len(st.spec.Inputs))
	st.out = make([]T, len(st.spec.Outputs))
	st.gradOut = make([]T, len(st.spec.Outputs))
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
	layout := &batchctx.Layout[T]{
		Name: st.spec.Name, Inputs: len(st.spec.Inputs), Outputs: len(st.spec.Outputs),
		Slots: st.spec.Slots, Params: st.params,
	}
	r.frozen[s] = st.spec.Frozen
	facts := &r.facts[s]
	facts.Frozen, facts.Recomputes, facts.Split = st.spec.Frozen, st.spec.Recomputes, st.split != nil
	for _, read := range st.spec.Reads {
		part := index(r.cfg.Parts, read.Part)
		layout.Reads = append(layout.Reads, batchctx.Read{Part: part, At: read.At})
		bit := uint64(1) << part
		if read.At == 0 || read.At&batchctx.AtForward != 0 {
			facts.Reads[schedule.F] |= bit
		}
		if read.At&batchctx.AtBackward != 0 {
			facts.Reads[schedule.B] |= bit
			facts.Reads[schedule.I] |= bit
		}
		if read.At&batchctx.AtWeight != 0 {
			facts.Reads[schedule.B] |= bit
			facts.Reads[schedule.W] |= bit
			if st.split == nil { // as I it runs its whole backward
				facts.Reads[schedule.I] |= bit
			}
		}
	}
	for _, name := range st.spec.Losses {
		layout.Losses = append(layout.Losses, lossIndex(r.cfg.Losses, name))
	}
	return layout
}

// resolveTies finds the uses of each parameter, in stage order.
func (r *Runner[T]) resolveTies() {
	owner := map[string]use{}
	for s := range r.stages {
		for p, param := range r.stages[s].params {
			if param.Contributes == batchctx.Frozen {
				continue
			}
			this := use{s, p}
			if first, tied := owner[param.Name]; tied {
				r.tied = append(r.tied, tie{first, this})
			} else {
				owner[param.Name] = this
				r.owners = append(r.owners, this)
			}
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

// program is a plan with what a step asks of it.
type program struct {
	*schedule.Plan
	extent batchctx.Extent
	parts  int // entry parts wanted
}

// planFor returns the checked plan of a mode for m microbatches.
func (r *Runner[T]) planFor(mode schedule.Mode, m int) (*program, error) {
	if p := r.programs[mode]; p != nil && p.Microbatches == m {
		return p, nil
	}
	asked := schedule.Params{
		Placement: schedule.Looped(1, len(r.stages)), Microbatches: m,
		Group: r.cfg.Group, Mode: mode, Frozen: r.frozen,
	}
	plan, err := r.cfg.Plan(asked)
	if err != nil {
		return nil, err
	}
	if err := answers(plan, &asked); err != nil {
		return nil, err
	}
	if plan, err = schedule.Lifetimes(plan, r.facts, len(r.cfg.Parts)); err != nil {
		return nil, err
	}
	if err := schedule.Check(plan); err != nil {
		return nil, err
	}
	p := &program{Plan: plan}
	p.extent.Entries = m
	if pullsInOrder(plan) {
		p.extent.Entries = min(plan.Entries[0]+min(r.cfg.LookAhead, m), m)
	}
	p.extent.Windows = plan.Windows
	for _, kinds := range plan.Parts {
		for _, parts := range kinds {
			p.extent.Wanted |= parts
		}
	}
	p.parts = bits.OnesCount64(p.extent.Wanted)
	r.programs[mode] = p
	return p, nil
}

// answers reports whether a plan is for what the rule was asked: a check proves a
// plan against itself, not against the step.
func answers(plan *schedule.Plan, asked *schedule.Params) error {
	switch {
	case plan == nil:
		return fmt.Errorf("%w: it returned none", ErrPlan)
	case plan.Microbatches != asked.Microbatches:
		return fmt.Errorf("%w: %d microbatches where %d were asked for", ErrPlan, plan.Microbatches, asked.Microbatches)
	case plan.Mode != asked.Mode:
		return fmt.Errorf("%w: mode %v where %v was asked for", ErrPlan, plan.Mode, asked.Mode)
	case plan.Placement.Ranks != asked.Placement.Ranks || plan.Placement.Stages() != asked.Placement.Stages():
		return fmt.Errorf("%w: %d stages on %d ranks where %d on %d were asked for", ErrPlan,
			plan.Placement.Stages(), plan.Placement.Ranks, asked.Placement.Stages(), asked.Placement.Ranks)
	}
	return nil
}

// pullsInOrder reports whether the first stage takes microbatches in ascending
// order, one after the other, so that entries are in flight for as long as the plan
// says. A source is pulled in ascending order whatever the plan does; in any other
// one entries wait for their turn.
func pullsInOrder(plan *schedule.Plan) bool {
	next := 0
	for _, segment := range plan.Programs[0] {
		begin := next
		for _, action := range segment.Body {
			if action.Kind() == schedule.F && action.Stage() == 0 {
				if action.Microbatch() != next {
					return false
				}
				next++
			}
		}
		taken := next - begin
		if taken > 0 && segment.Repeat > 1 && segment.Stride != taken {
			return false
		}
		next = begin + taken*segment.Repeat
	}
	return true
}

// Step trains on m microbatches, m >= 1. The error is an *Error for what went
// wrong within the step; then everything the step held is released, and the next
// step works.
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
	return nil
}

func (r *Runner[T]) run(ctx context.Context, mode schedule.Mode, m int, source Source[T]) (*Result, error) {
	switch {
	case r.closed:
		return nil, ErrClosed
	case r.running:
		return nil, ErrBusy
	case source == nil:
		return nil, errors.New("runner: the source is nil")
	case mode == schedule.Training && len(r.owners) > 0 && r.objective < 0:
		return nil, ErrNoObjective
	}
	plan, err := r.planFor(mode, m)
	if err != nil {
		return nil, fmt.Errorf("runner: a plan for %d microbatches: %w", m, err)
	}
	r.begin(plan, source)
	whole := false
	defer func() {
		if !whole { // an error, or a panic on its way through
			r.abort()
		}
		r.end()
	}()
	if err := r.execute(ctx); err != nil {
		return nil, r.failed(err)
	}
	if err := r.finish(ctx); err != nil {
		return nil, r.failed(r.fault(0, err))
	}
	whole = true
	if mode == schedule.Training {
		r.step++
	}
	return r.result, nil
}

// failed tells the hook of an error while everything is still there.
func (r *Runner[T]) failed(err error) error {
	if r.cfg.Hooks.Failed != nil {
		r.cfg.Hooks.Failed(err, r.context.Owners())
	}
	return err
}

// fault gives an error its place.
func (r *Runner[T]) fault(action schedule.Action, err error) error {
	e := &Error{Action: action, Err: err}
	if action.Kind() != schedule.None {
		e.Name = r.stages[action.Stage()].spec.Name
	}
	return e
}
