package passes

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Outline contains the facts that follow from a plan's placement, mode, frozen stages and actions.
type Outline struct {
	Plan         *schedule.Plan
	Stages       int
	Microbatches int64
	Transfers    bool // the plan has sends or receives
	Marked       bool // the plan has drops, or tables of the lifetime pass
	Reduces      bool // the plan reduces gradients
	Accumulates  bool // the plan has whole gradients, from ZERO_GRAD to WAIT_REDUCE
	Retires      bool // the plan is for PyTorch and has waits: each of its sends and reductions needs one
	Quantizes    bool // the plan has copies of weights
	Offloads     bool // the plan moves saved state to far memory
	// Allowance is the maximum number of actions that a RoundRobin runs one by one. A Walk and a
	// Clock, whose actions cost more, run at most an eighth of it. The allowance grows with the size of the plan, so a
	// small file is cheap to reject.
	Allowance int64

	On    [][]int // by rank: its stages
	Place []int   // by stage: its index among the stages of its rank
	Sites []site  // by stage
}

// site contains the facts of one stage.
type site struct {
	Copy        int  // the index of the stage's copy of the model
	First, Last bool // the stage is the first or last of its copy
	crosses     bool // the edge to the next stage leads to another rank
	backward    bool // Plan.HasBackward
	span        repeats.Run
	Kinds       uint32 // a bit for each kind of its actions in the plan
}

// KindsPerStage is the number of sets of microbatches of a stage: one for each kind from None to WaitB.
const KindsPerStage = int(schedule.WaitB) + 1

// NewOutline returns the outline of a plan, whose tables must have the lengths that its placement requires.
func NewOutline(plan *schedule.Plan) Outline {
	o := Outline{Plan: plan, Stages: plan.Placement.Stages(), Microbatches: int64(plan.Microbatches)}
	o.On, o.Place, o.Sites = make([][]int, plan.Placement.Ranks), make([]int, o.Stages), make([]site, o.Stages)
	trained := 0 // the first stage that is not frozen
	for trained < len(plan.Frozen) && plan.Frozen[trained] {
		trained++
	}
	for s, rank := range plan.Placement.Rank {
		o.Place[s] = len(o.On[rank])
		o.On[rank] = append(o.On[rank], s)
		lo, hi := plan.Span(s)
		last := plan.Placement.Last(s)
		o.Sites[s] = site{
			Copy:  s / plan.Placement.Depth(),
			First: plan.Placement.First(s), Last: last,
			crosses:  !last && rank != plan.Placement.Rank[s+1],
			backward: plan.Mode == schedule.Training && s%plan.Placement.Depth() >= trained,
			span:     repeats.Run{Lo: int64(lo), Hi: int64(hi)},
		}
	}
	o.Marked = plan.Parts != nil || plan.StageWindows != nil || plan.EntryWindows != nil || plan.SendWindows != nil
	var kinds uint32 // of all stages
	var drops schedule.Drop
	var written int64
	for _, program := range plan.Programs {
		for a := range schedule.StaticActions(program) {
			written++
			kinds |= 1 << a.Kind()
			drops |= a.Drop()
			if stage := a.Stage(); stage < o.Stages {
				o.Sites[stage].Kinds |= 1 << a.Kind()
			}
		}
	}
	// The warm-up and drain of a plan take up to about ten actions per stage and rank.
	o.Allowance = 1<<24 + 128*(int64(len(o.On))*int64(o.Stages)+written)
	o.Transfers = kinds&(1<<schedule.SendF|1<<schedule.RecvF|1<<schedule.SendB|1<<schedule.RecvB) != 0
	o.Marked = o.Marked || drops != 0
	o.Accumulates = kinds>>schedule.ZeroGrad&1 == 1
	o.Reduces = kinds&(1<<schedule.ReduceGrad|1<<schedule.WaitReduce) != 0 || o.Accumulates
	o.Retires = plan.Runtime.Posts() && kinds&(1<<schedule.WaitF|1<<schedule.WaitB|1<<schedule.WaitReduce) != 0
	o.Quantizes = kinds>>schedule.Quantize&1 == 1 || drops&WeightBits != 0
	o.Offloads = kinds&(1<<schedule.Offload|1<<schedule.WaitOffload|1<<schedule.Reload) != 0 || drops&schedule.DropFar != 0
	return o
}

// Set returns the index of the set of microbatches of a stage and a kind up to WaitB.
func (o *Outline) Set(stage int, kind schedule.Kind) int { return stage*KindsPerStage + int(kind) }

// IsFirst reports whether the stage is the first of its copy of the model.
func (o *Outline) IsFirst(stage int) bool { return o.Sites[stage].First }

// IsLast reports whether the stage is the last of its copy of the model.
func (o *Outline) IsLast(stage int) bool { return o.Sites[stage].Last }

// Copies returns the number of copies of the model.
func (o *Outline) Copies() int { return max(o.Plan.Placement.Copies, 1) }

// HasBackward is Plan.HasBackward.
func (o *Outline) HasBackward(stage int) bool { return o.Sites[stage].backward }

// Includes reports whether the plan has an action of the kind for the stage.
func (o *Outline) Includes(stage int, kind schedule.Kind) bool {
	return o.Sites[stage].Kinds>>kind&1 == 1
}

// Span is Plan.Span.
func (o *Outline) Span(stage int) repeats.Run { return o.Sites[stage].span }

// Crosses reports whether the edge from a stage to the next one leads to another rank. There is no
// edge before the first stage of a copy of the model or after its last stage.
func (o *Outline) Crosses(stage int) bool { return stage >= 0 && o.Sites[stage].crosses }

// Reads returns the set of entry parts that an action reads, or 0 if the plan has no StageInfo.
func (o *Outline) Reads(stage int, kind schedule.Kind) uint64 {
	if o.Plan.StageInfo == nil {
		return 0
	}
	return o.Plan.StageInfo[stage].Reads[kind]
}

// WeightBits are the drops of copies of weights.
const WeightBits = schedule.DropForwardWeights | schedule.DropBackwardWeights
