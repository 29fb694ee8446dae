package runner

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
	"sync"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// planner makes plans for steps and keeps the last one of each mode. The ranks of a process share it.
type planner struct {
	plan     *Plan // from the completed configuration
	memory   *Memory
	params   schedule.Params // everything but the mode and the number of microbatches
	passes   lower.Passes
	replicas int

	mu sync.Mutex
	// plans holds the last plans of each mode. Plan 0 is for the replicas with one more microbatch
	// than the others, or for all replicas if all have the same number; plan 1 is for the others.
	// Plan 2+r is for the shapes of replica r's microbatches.
	plans [2][]*planned
}

// planned is a plan with its memory plan.
type planned struct {
	*schedule.Plan
	memory planning.Plan // nil if memory is not planned
	shapes []int         // the shapes for which memory is planned; nil means any
	hash   uint64        // of the programs of all ranks
	// offloads is set if a rank offloads saved state.
	offloads bool
	// comparedWith is the plan with which check.Replicas has compared this one: the plan of the
	// replicas with one more microbatch.
	comparedWith *schedule.Plan
}

// share is the plan of a replica for its share of a step's microbatches.
type share struct {
	*planned
	slot int    // index in planner.plans
	hash uint64 // of the plans of all replicas
}

// planShare returns the checked plan of a mode for a replica's share of m microbatches.
func (p *planner) planShare(mode schedule.Mode, m, replica int) (share, error) {
	if m > 0 && m < p.replicas { // the rule rejects 0
		return share{}, fmt.Errorf("%w: %d microbatches for %d replicas: each needs at least one", schedule.ErrParams, m, p.replicas)
	}
	if copies := p.params.Placement.Copies; p.replicas > 1 && mode == schedule.Training && m < p.replicas*copies { // other replicas read what each copy reduces
		return share{}, fmt.Errorf("%w: %d microbatches for %d replicas of %d copies of the model: each copy needs at least one", schedule.ErrParams, m, p.replicas, copies)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plans[mode] == nil {
		p.plans[mode] = make([]*planned, 2+p.replicas)
	}
	most, err := p.planReplica(mode, (m+p.replicas-1)/p.replicas, 0)
	if err != nil {
		return share{}, err
	}
	if m%p.replicas == 0 {
		return share{most, 0, most.hash}, nil
	}
	fewest, err := p.planReplica(mode, m/p.replicas, 1)
	if err != nil {
		return share{}, err
	}
	if mode == schedule.Training && !p.plan.Unchecked && fewest.comparedWith != most.Plan {
		if err := check.Replicas(most.Plan, fewest.Plan); err != nil {
			return share{}, err
		}
		fewest.comparedWith = most.Plan
	}
	hash := bits.RotateLeft64(most.hash, 1) ^ fewest.hash
	if replica < m%p.replicas {
		return share{most, 0, hash}, nil
	}
	return share{fewest, 1, hash}, nil
}

// planReplica returns the checked plan of a mode for m microbatches of one replica, and keeps it in
// slot.
func (p *planner) planReplica(mode schedule.Mode, m, slot int) (*planned, error) {
	if kept := p.plans[mode][slot]; kept != nil && kept.Microbatches == m {
		return kept, nil
	}
	plan, err := p.make(mode, m)
	if err != nil {
		return nil, err
	}
	made := &planned{Plan: plan, hash: hashOf(plan), offloads: plan.Kinds()[schedule.Offload]}
	p.plans[mode][slot] = made
	return made, nil
}

// appendHello appends a rank's description of the step that it begins. It does not allocate if b has
// enough capacity (L11).
func (p *share) appendHello(b []byte, step int64, m, capacity, level int) []byte {
	b = strconv.AppendInt(append(b, "step "...), step, 10)
	b = append(append(b, " ("...), p.Mode.String()...)
	b = append(append(b, ", "...), p.Name[:min(len(p.Name), 200)]...)
	b = strconv.AppendInt(append(b, ") with "...), int64(m), 10)
	b = strconv.AppendUint(append(b, " microbatches, plan "...), p.hash, 16)
	b = strconv.AppendInt(append(b, ", links of capacity "...), int64(capacity), 10)
	if level > 0 {
		b = strconv.AppendInt(append(b, ", shard level "...), int64(level), 10)
	}
	return b
}

// hashOf returns a hash of the properties that ranks must agree on: the programs, as a flat plan, and
// the slices. It is the same in all processes.
func hashOf(plan *schedule.Plan) uint64 {
	sum := fnv.New64a()
	var word [8]byte
	add := func(n uint64) {
		binary.LittleEndian.PutUint64(word[:], n)
		_, _ = sum.Write(word[:]) // Write never fails.
	}
	add(uint64(plan.Slices))
	for _, program := range plan.Programs {
		add(uint64(len(program)))
		for _, segment := range program {
			add(uint64(segment.Repeat))
			add(uint64(segment.Stride))
			add(uint64(len(segment.Body)))
			for _, action := range segment.Body {
				add(uint64(action))
			}
		}
	}
	return sum.Sum64()
}

// withMemory adds a memory plan to a plan, for microbatches of the given shape classes, or of any
// class if shapes is nil.
func (p *planner) withMemory(ctx context.Context, plan share, replica int, shapes []int) (*planned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := plan.slot
	if shapes != nil {
		slot = 2 + replica
	}
	if kept := p.plans[plan.Mode][slot]; kept != nil && kept.Plan == plan.Plan && kept.memory != nil && slices.Equal(kept.shapes, shapes) {
		return kept, nil
	}
	made := &planned{Plan: plan.Plan, shapes: slices.Clone(shapes), hash: plan.planned.hash, offloads: plan.offloads}
	asked := p.params
	asked.Mode, asked.Microbatches = plan.Mode, plan.Microbatches
	var err error
	made.memory, err = p.memory.Profile.Plan(ctx, &planning.Step{
		Plan: plan.Plan, Replicas: p.replicas, LookAhead: p.plan.LookAhead, Shapes: made.shapes, Budget: p.memory.Budget, Search: p.memory.Search,
		Rule: p.plan.Rule, Params: asked, Passes: p.passes,
	})
	if err != nil {
		return nil, err
	}
	p.plans[plan.Mode][slot] = made
	return made, nil
}

// make asks the rule for a plan and runs the passes on it.
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
// check verifies only that a plan is consistent, not that it fits the step.
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
	if len(plan.Parts) != stages || len(plan.Windows) != stages || len(plan.Entries) != ranks || ranks > 1 && len(plan.Outgoing) != stages {
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
	first, last schedule.Action     // the first and last calls of a stage: see span
	effects     [][]effects.Effects // by segment, and by action of the segment's body
	// atMost is set if the memory plan is an upper bound, because it is for several shapes or
	// contains sizes that depend on values.
	atMost bool
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
		p.extent.EntryWindow = min(plan.Entries[rank]+min(lookAhead, m), m)
	}
	return p
}

// span returns the first and last calls of a stage in a program, or 0 if there are none. The rank's
// time is measured between them.
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
