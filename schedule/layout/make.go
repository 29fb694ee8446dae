package layout

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// Config says how a step is laid out. The zero value is useful.
type Config struct {
	// LookAhead is how many entries a rank pulls before it needs them, the runner's.
	LookAhead int
	// Shapes is the shape class of each microbatch of the plan, where the step is told
	// beforehand; nil is the first one for all, or the envelope.
	Shapes []int
	// Envelope plans for microbatches of any shape class: every buffer has the size of
	// the largest one.
	Envelope bool
	// Budget is how many bytes a rank has for a step; 0 is no limit.
	Budget int64
	// Resident returns the bytes that a rank of a placement has before the step and after it,
	// which the budget holds as well; nil is none.
	Resident func(place schedule.Placement, rank int) int64
	// Instead is what is tried where the plan does not fit the budget, so that the error
	// can say what would.
	Instead []Alternative
	// Search limits the search for a layout, on each rank.
	Search placement.Options
}

// Memory is the memory of a step, rank by rank.
type Memory struct {
	Ranks   []Rank
	plan    *schedule.Plan
	profile *Profile // those of the envelope where it is one
	classes int      // of shapes that were given
	cfg     Config
}

// Rank is the memory of one rank.
type Rank struct {
	Layout   *memory.Layout
	Segments []SegmentPlaces // of its program
	End      int             // the place of step end
	Certificate
	// Problem is what was placed, and Offsets is where: the program with its repeats left
	// out that are like others. What has one offset in all of them is one buffer with gaps.
	Problem *placement.Problem
	Offsets []int64
}

// Certificate says how good a layout is, and what is in it. The bound is that of the whole
// program, in bytes as they are asked for.
type Certificate struct {
	placement.Certificate
	Sizes   string // "exact", perhaps of one shape class, or "envelope of n shape classes": then the bound is the envelope's own
	Buffers int    // that were placed
	Peak    Peak
}

// Make lays out the memory of every rank of a plan. The plan has been through
// lower.Lifetimes, and through lower.Transfers where it has several ranks.
//
// Errors wrap ErrProfile where the profile does not fit the plan, ErrConfig,
// ErrTooLong where a program keeps more the more microbatches it has or repeats too much at
// a time, so that there is too much to be planned, and ErrBudget.
func Make(ctx context.Context, plan *schedule.Plan, profile *Profile, cfg Config) (*Memory, error) {
	for rank, program := range plan.Programs {
		written := int64(0)
		for i := range program {
			written += program[i].Len()
		}
		if written > schedule.MaxWritten {
			return nil, fmt.Errorf("%w: rank %d has %d actions in the bodies of its loops, and may have %d; take smaller groups of microbatches", ErrTooLong, rank, written, schedule.MaxWritten)
		}
	}
	plan = plan.Flat()
	p, err := prepare(plan, profile, cfg)
	if err != nil {
		return nil, err
	}
	p.Ranks = make([]Rank, plan.Placement.Ranks)
	ports := newPorts(plan, p.profile)
	if err := eachRank(len(p.Ranks), func(rank int) error { return p.layOut(ctx, ports, rank) }); err != nil {
		return nil, err
	}
	if err := p.refuse(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// eachRank does something for every rank, as many at once as there are processors.
func eachRank(ranks int, do func(rank int) error) error {
	faults := make([]error, ranks)
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), ranks) {
		workers.Go(func() {
			for rank := range work {
				faults[rank] = do(rank)
			}
		})
	}
	for rank := range ranks {
		work <- rank
	}
	close(work)
	workers.Wait()
	return errors.Join(faults...)
}

// prepare looks at what Make is given.
func prepare(plan *schedule.Plan, profile *Profile, cfg Config) (*Memory, error) {
	if err := profile.Validate(); err != nil {
		return nil, err
	}
	var faults []error
	fault := func(kind error, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{kind}, args...)...))
	}
	stages := plan.Placement.Stages()
	if len(plan.Parts) != stages {
		fault(ErrConfig, "the plan has no lifetimes: put it through lower.Lifetimes")
	}
	if n := len(profile.Shapes[0].Stages); n != stages && n != plan.Placement.Depth() {
		fault(ErrProfile, "a profile of %d stages for a plan of %d", n, stages)
	}
	if cfg.LookAhead < 0 {
		fault(ErrConfig, "LookAhead is %d", cfg.LookAhead)
	}
	if cfg.Budget < 0 {
		fault(ErrConfig, "Budget is %d", cfg.Budget)
	}
	if cfg.Shapes != nil && cfg.Envelope {
		fault(ErrConfig, "Shapes are given for an envelope: give one of the two")
	}
	if cfg.Shapes != nil && len(cfg.Shapes) != plan.Microbatches {
		fault(ErrConfig, "shapes of %d microbatches of %d", len(cfg.Shapes), plan.Microbatches)
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
	if len(cfg.Shapes) > 0 && slices.Min(cfg.Shapes) == slices.Max(cfg.Shapes) { // one for all, so it repeats itself
		one := *p.profile
		one.Shapes = one.Shapes[cfg.Shapes[0]:][:1]
		p.profile, p.cfg.Shapes = &one, nil
	}
	return p, nil
}

// layOut plays the program of a rank, places what it allocates and says where it lies.
func (p *Memory) layOut(ctx context.Context, ports *ports, rank int) error {
	best, err := p.search(ctx, ports, rank)
	if err != nil {
		return err
	}
	r, played := &p.Ranks[rank], best.played
	r.Segments, r.End = played.segments()
	r.Certificate = Certificate{Certificate: best.solution.Certificate, Sizes: "exact", Peak: played.peak(r.Segments, r.End)}
	r.Bound, r.Optimal = r.Peak.Bytes, best.optimal() || best.separate && best.solution.Optimal && !played.padded(best.align)
	if best.rotates {
		r.Method = "one size in turns, " + r.Method
	}
	switch {
	case r.Height == r.Bound:
	case best.optimal():
		r.Proof = fmt.Sprintf("the height is what is alive at once with the padding that it has where every offset is a multiple of %d bytes", leastAlign)
	case !r.Optimal && !best.separate: // a proof would be of layouts that repeat themselves alike
		r.Proof = "not proven: it may be that a layout is lower"
	}
	switch {
	case p.cfg.Envelope:
		r.Sizes = fmt.Sprintf("envelope of %d shape classes", p.classes)
	case p.classes > 1 && p.cfg.Shapes == nil:
		r.Sizes = fmt.Sprintf("exact, for shape class %q alone", p.profile.Shapes[0].Name)
	}
	r.Problem, r.Offsets = best.problem(best.align), best.solution.Offsets
	r.Buffers = len(r.Problem.Buffers)
	r.Layout = played.layout(r.Segments, r.End, best.group, best.solution.Offsets, best.solution.Height)
	return nil
}
