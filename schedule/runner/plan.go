package runner

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// planner makes plans for steps and keeps the latest ones. The ranks of a process share it, and Prepare uses it while a
// step runs.
type planner struct {
	plan     *Plan // from the completed configuration
	memory   *Memory
	params   schedule.Params // everything but the mode and the number of microbatches
	passes   lower.Passes
	replicas int

	mu   sync.Mutex
	kept []*planned // the most recently used first, at most maxKept for each replica
}

// maxKept is the number of plans that a planner keeps for each replica: one each for a training step, an audited step,
// a prepared step and an evaluation, with and without a memory plan.
const maxKept = 8

// request describes a plan that a planner makes.
type request struct {
	mode   schedule.Mode
	m      int      // number of microbatches of the replica
	bare   *planned // the plan to which a memory plan is added; nil for a plan without memory
	shapes []int    // the shape classes for which memory is planned; nil means any
}

// planned is a plan, checked unless Plan.Unchecked is set, which may have a memory plan.
type planned struct {
	*schedule.Plan // nil while it is being made
	want           request
	memory         planning.Plan // nil if memory is not planned
	hash           uint64        // of the programs of all ranks: see hashOf
	// offloads is set if a rank offloads saved state.
	offloads bool
	// comparedWith is the plan with which check.Replicas has compared this one.
	comparedWith *planned
	programs     []struct { // by rank of the pipeline
		sync.Once
		program *program
	}
	made chan struct{} // closed when the fields above, or err, are set
	err  error
}

// planShare returns the checked plan of a mode for a replica's share of a batch, and a hash of the plans of
// all replicas.
func (p *planner) planShare(ctx context.Context, mode schedule.Mode, b *batch, replica int) (mine *planned, hash fnvSum, err error) {
	fewest := b.own(p.replicas - 1) // without an order, the last replica has the fewest
	for r := range b.order {
		fewest = min(fewest, b.own(r))
	}
	if b.m > 0 && fewest < 1 { // the rule rejects 0
		return nil, 0, fmt.Errorf("%w: %d microbatches for %d replicas: each needs at least one", schedule.ErrParams, b.m, p.replicas)
	}
	if copies := p.params.Placement.Copies; p.replicas > 1 && mode == schedule.Training && fewest < copies { // other replicas read what each copy reduces
		return nil, 0, fmt.Errorf("%w: %d microbatches for %d replicas of %d copies of the model: each copy needs at least one", schedule.ErrParams, b.m, p.replicas, copies)
	}
	hash = newSum()
	var first, plan *planned
	for r := range p.replicas {
		if m := b.count(r); plan == nil || plan.want.m != m {
			if plan, err = p.keep(ctx, request{mode: mode, m: m}); err == nil && r > 0 {
				err = p.compare(first, plan)
			}
			if err != nil {
				return nil, 0, err
			}
		}
		if r == 0 {
			first = plan
		}
		if r == replica {
			mine = plan
		}
		hash.add(plan.hash)
	}
	return mine, hash, nil
}

// compare returns an error if replicas cannot run two plans together. It compares only training plans that are
// checked.
func (p *planner) compare(first, other *planned) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first.want.mode != schedule.Training || p.plan.Unchecked || first == other || other.comparedWith == first {
		return nil
	}
	if err := check.Replicas(first.Plan, other.Plan); err != nil {
		return err
	}
	other.comparedWith = first
	return nil
}

// keep returns the kept plan for a request, or makes and keeps it. If another goroutine is making the plan, keep waits.
func (p *planner) keep(ctx context.Context, want request) (*planned, error) {
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.kept, func(k *planned) bool {
			return k.want.mode == want.mode && k.want.m == want.m && k.want.bare == want.bare &&
				slices.Equal(k.want.shapes, want.shapes) && (k.want.shapes == nil) == (want.shapes == nil)
		})
		if i < 0 {
			plan := &planned{want: want, made: make(chan struct{}), err: errNoReturn}
			p.kept = slices.Insert(p.kept[:min(len(p.kept), maxKept*p.replicas-1)], 0, plan)
			p.mu.Unlock()
			return plan, p.fill(ctx, plan)
		}
		plan := p.kept[i]
		copy(p.kept[1:i+1], p.kept[:i])
		p.kept[0] = plan
		p.mu.Unlock()
		select {
		case <-plan.made:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if plan.err == nil {
			return plan, nil
		} // the goroutine that made the plan returns the error, which may come from another context
	}
}

// fill makes a plan, and forgets it if that fails.
func (p *planner) fill(ctx context.Context, plan *planned) error {
	defer func() { // also if the rule panics
		if plan.err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.kept = slices.DeleteFunc(p.kept, func(k *planned) bool { return k == plan })
		}
		close(plan.made)
	}()
	plan.err = p.plans(ctx, plan)
	return plan.err
}

// plans makes a plan, or adds a memory plan to one.
func (p *planner) plans(ctx context.Context, plan *planned) (err error) {
	plan.programs = slices.Grow(plan.programs, p.params.Placement.Ranks)[:p.params.Placement.Ranks]
	want, bare := &plan.want, plan.want.bare
	if bare == nil {
		if plan.Plan, err = p.make(want.mode, want.m); err == nil {
			plan.hash, plan.offloads = hashOf(plan.Plan), plan.Kinds()[schedule.Offload]
		}
		return err
	}
	plan.Plan, plan.hash, plan.offloads = bare.Plan, bare.hash, bare.offloads
	asked := p.params
	asked.Mode, asked.Microbatches = want.mode, want.m
	plan.memory, err = p.memory.Profile.Plan(ctx, &planning.Step{
		Plan: plan.Plan, Replicas: p.replicas, LookAhead: p.plan.LookAhead, Shapes: want.shapes, Budget: p.memory.Budget, Search: p.memory.Search,
		Rule: p.plan.Rule, Params: asked, Passes: p.passes,
	})
	return err
}

// fnvSum is the FNV-1a hash of a sequence of words. It is the same in all processes.
type fnvSum uint64

func newSum() fnvSum { return 14695981039346656037 }

func (s *fnvSum) add(word uint64) {
	for range 8 {
		*s = (*s ^ fnvSum(word&0xff)) * 1099511628211
		word >>= 8
	}
}

// appendTo appends the 16 digits of the hash.
func (s fnvSum) appendTo(text []byte) []byte {
	var word [8]byte
	binary.BigEndian.PutUint64(word[:], uint64(s))
	return hex.AppendEncode(text, word[:])
}

// hashOf returns a hash of the properties of a flat plan that ranks must agree on: the programs, and the
// number of slices.
func hashOf(plan *schedule.Plan) uint64 {
	sum := newSum()
	sum.add(uint64(plan.Slices))
	for _, program := range plan.Programs {
		sum.add(uint64(len(program)))
		for _, segment := range program {
			sum.add(uint64(segment.Repeat))
			sum.add(uint64(segment.Stride))
			sum.add(uint64(len(segment.Body)))
			for _, action := range segment.Body {
				sum.add(uint64(action))
			}
		}
	}
	return uint64(sum)
}

// make asks the rule for a plan and, unless Plan.Unchecked is set, runs the passes on it, which prove it.
// The result is flat.
func (p *planner) make(mode schedule.Mode, m int) (*schedule.Plan, error) {
	asked := p.params
	asked.Mode, asked.Microbatches = mode, m
	plan, err := p.plan.Rule(asked)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(plan, &asked); err != nil {
		return nil, err
	}
	if !p.plan.Unchecked {
		passes := p.passes
		has := plan.Kinds()
		passes.Reduce = passes.Reduce && !has[schedule.ReduceGrad]
		if has[schedule.Unshard] {
			passes.Gathered = 0
		}
		if plan, err = lower.Prepare(plan, passes); err != nil {
			return nil, err
		}
	}
	plan = plan.Flat()
	if p.plan.Unchecked {
		if err := checkRunnable(plan); err != nil {
			return nil, err
		}
	}
	if p.replicas > 1 && mode == schedule.Training && !p.plan.Unchecked {
		return plan, check.Replicas(plan)
	}
	return plan, nil
}

// checkAnswer returns an error unless a plan has the parameters that the rule was asked for. Package
// check verifies only that a plan is consistent, not that it fits the step. checkAnswer also rejects a
// plan that has both slices and several copies of the model.
func checkAnswer(plan *schedule.Plan, asked *schedule.Params) error {
	switch {
	case plan == nil:
		return fmt.Errorf("%w: the rule returned no plan", ErrPlan)
	case plan.Microbatches != asked.Microbatches:
		return fmt.Errorf("%w: %d microbatches, want %d", ErrPlan, plan.Microbatches, asked.Microbatches)
	case plan.Mode != asked.Mode:
		return fmt.Errorf("%w: mode %v, want %v", ErrPlan, plan.Mode, asked.Mode)
	case plan.Placement.Ranks != asked.Placement.Ranks || plan.Placement.Stages() != asked.Placement.Stages():
		return fmt.Errorf("%w: %d stages on %d ranks, want %d on %d", ErrPlan,
			plan.Placement.Stages(), plan.Placement.Ranks, asked.Placement.Stages(), asked.Placement.Ranks)
	case max(plan.Placement.Copies, 1) != max(asked.Placement.Copies, 1):
		return fmt.Errorf("%w: %d copies of the model, want %d", ErrPlan, plan.Placement.Copies, asked.Placement.Copies)
	case plan.Slices > 1 && plan.Placement.Copies > 1:
		return fmt.Errorf("%w: sequences in %d slices for %d copies of the model, which alternate between microbatches: use one or the other", ErrPlan,
			plan.Slices, plan.Placement.Copies)
	case len(plan.Programs) != asked.Placement.Ranks:
		return fmt.Errorf("%w: programs for %d ranks, want %d", ErrPlan, len(plan.Programs), asked.Placement.Ranks)
	}
	for stage, rank := range asked.Placement.Rank {
		if plan.Placement.Rank[stage] != rank {
			return fmt.Errorf("%w: stage %d on rank %d, want rank %d", ErrPlan, stage, plan.Placement.Rank[stage], rank)
		}
	}
	return nil
}

// checkRunnable returns an error unless an unchecked plan can run, that is, unless it contains
// lifetimes and every action is on the rank of its stage.
func checkRunnable(plan *schedule.Plan) error {
	stages, ranks := plan.Placement.Stages(), plan.Placement.Ranks
	if len(plan.Parts) != stages || len(plan.StageWindows) != stages || len(plan.EntryWindows) != ranks || ranks > 1 && len(plan.SendWindows) != stages {
		return fmt.Errorf("%w: an unchecked plan needs lifetimes: see lower.Lifetimes", ErrPlan)
	}
	for rank, program := range plan.Programs {
		for _, segment := range program {
			for _, action := range segment.Body {
				if s := action.Stage(); s >= stages || plan.Placement.Rank[s] != rank {
					return fmt.Errorf("%w: %v on rank %d, which does not have the stage", ErrPlan, action, rank)
				}
			}
		}
	}
	return nil
}

// program is one rank's part of a plan, with derived data.
type program struct {
	*planned
	extent      frames.Extent
	first, last schedule.Action     // the first and the last action that call a stage: see span
	effects     [][]effects.Effects // by segment, and by action of the segment's body
	// atMost is set if the memory plan is an upper bound, because it is for several shapes or
	// contains sizes that depend on values.
	atMost bool
}

// program returns the program of a rank, which it makes once.
func (p *planned) program(rank, lookAhead int) *program {
	own := &p.programs[rank]
	own.Do(func() { own.program = newProgram(p, rank, lookAhead) })
	return own.program
}

// newProgram returns the program of a rank.
func newProgram(plan *planned, rank, lookAhead int) *program {
	m := plan.Microbatches
	p := &program{planned: plan}
	p.first, p.last = span(plan.Programs[rank])
	for _, segment := range plan.Programs[rank] {
		body := make([]effects.Effects, len(segment.Body))
		for k, action := range segment.Body {
			body[k] = effects.Of(plan.Plan, action)
		}
		p.effects = append(p.effects, body)
	}
	if plan.memory != nil {
		near, _ := plan.memory.Layouts(rank)
		p.atMost = slices.ContainsFunc(near.Allocations, func(b memory.Allocation) bool { return b.AtMost })
	}
	p.extent = frames.Extent{Plan: plan.Plan, Wanted: plan.Wanted(rank), EntryWindow: 1} // unwanted parts are released immediately
	if slices.Max(p.extent.Wanted) > 0 {
		p.extent.EntryWindow = min(plan.EntryWindows[rank]+min(lookAhead, m), m)
	}
	return p
}

// span returns the first and the last action of a program that call a stage, or 0 if there are none. The
// rank's time is measured from the start of the first to the end of the last.
func span(program []schedule.Segment) (first, last schedule.Action) {
	for _, segment := range program {
		for _, action := range segment.Body {
			if isCall(action.Kind()) {
				last = action.Shift((segment.Repeat - 1) * segment.Stride)
				if first == 0 {
					first = action
				}
			}
		}
	}
	return first, last
}
