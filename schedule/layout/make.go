package layout

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// Config configures the layout of a step. The zero value is useful.
type Config struct {
	// LookAhead is the number of entries that a rank pulls before it needs them, as in the
	// runner's configuration.
	LookAhead int
	// Shapes is the shape class of each microbatch of the plan, if it is known beforehand.
	// Nil means the first class for all microbatches, or the envelope if Envelope is set.
	Shapes []int
	// Envelope plans for microbatches of any shape class, and for shorter ones. Every buffer has at most
	// its largest size over all classes.
	Envelope bool
	// Replicas is the number of data-parallel replicas; 0 means 1. With several replicas, the uses of a tied
	// parameter are added up at step end without buffers of the step.
	Replicas int
	// Budget is the memory that a step may use on a rank, in bytes; 0 means no limit.
	Budget int64
	// Resident returns the bytes that a rank of a placement holds before and after the step. They count
	// towards the budget. Nil means that ranks hold none.
	Resident func(place schedule.Placement, rank int) int64
	// Instead lists alternatives to try if the plan does not fit the budget. The error names
	// the alternatives that fit.
	Instead []Alternative
	// Search limits the search for a layout, on each rank.
	Search placement.Options

	births int // limits the traced allocations of a rank; 0 means maxBirths
}

// Memory is the memory of a step, rank by rank.
type Memory struct {
	Ranks   []RankLayout
	plan    *schedule.Plan
	profile *Profile // the envelope's if Config.Envelope is set
	ports   *ports
	classes int // number of shape classes of the given profile
	cfg     Config
}

// RankLayout is the memory of one rank.
type RankLayout struct {
	Layout *memory.Layout
	Certificate
	// Problem is the placement problem, and Offsets is its solution. The problem omits the skipped
	// repeats. Allocations that share an offset appear as one buffer with gaps.
	Problem *placement.Problem
	Offsets []int64
	// Far is the layout of the rank's far memory, which has its own places; nil if the rank offloads
	// nothing.
	Far *RankLayout
}

// Certificate states how good a layout is, and what it contains. The bound is the peak of the whole
// program, in requested bytes.
type Certificate struct {
	placement.Certificate
	Sizes   string // "exact", perhaps for one shape class, or "envelope of n shape classes"; the bound is then the peak of the envelope
	Buffers int    // number of placed buffers
	Peak    Peak
}

// Make lays out the memory of every rank of a plan. The plan must have passed
// lower.Lifetimes, and lower.Transfers if it has several ranks.
//
// Errors wrap ErrProfile if the profile does not fit the plan, ErrConfig, ErrBudget, or ErrTooLong if the
// number of buffers in flight grows with the number of microbatches, or if a program's repeats are too
// long to be planned. If ctx is canceled, the error may be its cause.
func Make(ctx context.Context, plan *schedule.Plan, profile *Profile, cfg Config) (*Memory, error) {
	for rank, program := range plan.Programs {
		written := int64(0)
		for i := range program {
			written += program[i].Len()
		}
		if written > schedule.MaxWritten {
			return nil, diagnostic.Errorf(ErrTooLong, "rank %d has %d actions in the bodies of its loops, but the limit is %d; use smaller groups of microbatches", rank, written, schedule.MaxWritten)
		}
	}
	plan = plan.Flat()
	p, err := prepare(plan, profile, cfg)
	if err != nil {
		return nil, err
	}
	p.Ranks = make([]RankLayout, plan.Placement.Ranks)
	if err := eachRank(len(p.Ranks), func(rank int) error { return p.layOut(ctx, rank) }); err != nil {
		return nil, err
	}
	if err := p.checkBudget(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// eachRank calls do for every rank, in parallel on all processors, and joins the errors.
func eachRank(ranks int, do func(rank int) error) error {
	faults := make([]error, ranks)
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for rank := range ranks {
		workers.Go(func() {
			running <- struct{}{}
			faults[rank] = do(rank)
			<-running
		})
	}
	workers.Wait()
	return errors.Join(faults...)
}

// prepare validates the arguments of Make, and chooses the profile to execute.
func prepare(plan *schedule.Plan, profile *Profile, cfg Config) (*Memory, error) {
	if err := profile.Validate(); err != nil {
		return nil, err
	}
	var faults []error
	fault := func(kind error, format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(kind, format, args...))
	}
	stages := plan.Placement.Stages()
	if len(plan.Parts) != stages {
		fault(ErrConfig, "the plan has no lifetimes: put it through lower.Lifetimes")
	}
	if n := len(profile.Shapes[0].Stages); n != stages && n != plan.Placement.Depth() {
		fault(ErrProfile, "the profile has %d stages, and the plan %d: record the profile with the stages of the plan, or of one copy of the model", n, stages)
	}
	if cfg.LookAhead < 0 {
		fault(ErrConfig, "LookAhead is %d, expected 0 or more", cfg.LookAhead)
	}
	if cfg.Budget < 0 {
		fault(ErrConfig, "Budget is %d, expected a number of bytes, or 0 for no limit", cfg.Budget)
	}
	if cfg.Shapes != nil && cfg.Envelope {
		fault(ErrConfig, "Shapes are given for an envelope: give one of the two")
	}
	if cfg.Shapes != nil && len(cfg.Shapes) != plan.Microbatches {
		fault(ErrConfig, "Shapes has %d entries, expected one for each of %d microbatches", len(cfg.Shapes), plan.Microbatches)
	}
	for m, shape := range cfg.Shapes {
		if shape < 0 || shape >= len(profile.Shapes) {
			fault(ErrConfig, "microbatch %d is of shape class %d of %d", m, shape, len(profile.Shapes))
			break
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	p := &Memory{plan: plan, profile: profile, classes: len(profile.Shapes), cfg: cfg}
	if cfg.Envelope {
		var err error
		if p.profile, err = envelope(profile); err != nil {
			return nil, err
		}
	}
	if len(cfg.Shapes) > 0 && slices.Min(cfg.Shapes) == slices.Max(cfg.Shapes) { // one class, so repeats can be equal
		single := *p.profile
		single.Shapes = single.Shapes[cfg.Shapes[0]:][:1]
		p.profile, p.cfg.Shapes = &single, nil
	}
	p.ports = newPorts(plan, p.profile)
	return p, nil
}

// layOut lays out the memory of a rank, and its far memory if it offloads.
func (p *Memory) layOut(ctx context.Context, rank int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := &p.Ranks[rank]
	if err := p.layOutSpace(ctx, rank, false, r); err != nil || !offloads(p.plan.Programs[rank]) {
		return err
	}
	r.Far = new(RankLayout)
	return p.layOutSpace(ctx, rank, true, r.Far)
}

// layOutSpace lays out the memory of a rank, or its far memory.
func (p *Memory) layOutSpace(ctx context.Context, rank int, far bool, r *RankLayout) error {
	best, err := p.search(ctx, rank, far)
	if err != nil {
		return err
	}
	r.Certificate = Certificate{Certificate: best.solution.Certificate, Sizes: "exact", Peak: best.peak()}
	r.Bound, r.Optimal = r.Peak.Bytes, best.optimal() || best.separate() && best.solution.Optimal && !best.needsPadding(best.align)
	if best.rotations != nil {
		r.Method = "one size in turns, " + r.Method
	}
	switch {
	case r.Height == r.Bound: // the solution's own proof stands
	case best.optimal():
		r.Proof = fmt.Sprintf("the height is the most bytes alive at once, with every buffer rounded up to a multiple of %d bytes, which divides every offset", minAlign)
	case !r.Optimal && !best.separate(): // a proof for the problem holds only for layouts with these cycles
		r.Proof = "not proven: a lower layout may exist"
	}
	switch {
	case p.cfg.Envelope && p.classes > 1:
		r.Sizes = fmt.Sprintf("envelope of %d shape classes", p.classes)
	case p.classes > 1 && p.cfg.Shapes == nil:
		r.Sizes = fmt.Sprintf("exact, for shape class %q alone", p.profile.Shapes[0].Name)
	}
	r.Problem, r.Offsets = best.problem(best.group, best.count, best.align), best.solution.Offsets
	r.Buffers = len(r.Problem.Buffers)
	r.Layout = best.layout(best.group, best.solution.Offsets, best.solution.Height)
	return nil
}
