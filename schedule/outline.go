package schedule

// outline is what follows from a plan's placement, mode and frozen stages, for
// the passes that go over it.
type outline struct {
	plan         *Plan
	stages       int
	microbatches int64
	transfers    bool // the plan says what is sent and received
	marked       bool // the plan says what is dropped
	reduces      bool // the plan says when gradients are reduced
	quantizes    bool // the plan has copies of weights

	on    [][]int // by rank: its stages
	place []int   // by stage: its place among those of its rank
	sites []site  // by stage
}

// site is what follows for one stage.
type site struct {
	copy        int  // of the model
	first, last bool // of its copy
	crosses     bool // the edge to the next stage leads to another rank
	backward    bool // Plan.HasBackward
	span        run
	kinds       uint32 // those that the plan has of it, a set
}

// kindsPerStage is how many sets of microbatches a stage has: one for each kind up
// to WaitB, None among them.
const kindsPerStage = int(WaitB) + 1

// newOutline returns the outline of a plan whose parts fit together.
func newOutline(plan *Plan) outline {
	o := outline{plan: plan, stages: plan.Placement.Stages(), microbatches: int64(plan.Microbatches)}
	o.on, o.place, o.sites = make([][]int, plan.Placement.Ranks), make([]int, o.stages), make([]site, o.stages)
	trained := 0 // the first stage that is not frozen
	for trained < len(plan.Frozen) && plan.Frozen[trained] {
		trained++
	}
	for s, rank := range plan.Placement.Rank {
		o.place[s] = len(o.on[rank])
		o.on[rank] = append(o.on[rank], s)
		lo, hi := plan.Span(s)
		last := plan.Placement.Last(s)
		o.sites[s] = site{
			copy:  s / plan.Placement.Depth(),
			first: plan.Placement.First(s), last: last,
			crosses:  !last && rank != plan.Placement.Rank[s+1],
			backward: plan.Mode == Training && s%plan.Placement.Depth() >= trained,
			span:     run{int64(lo), int64(hi)},
		}
	}
	o.marked = plan.Parts != nil || plan.Windows != nil || plan.Entries != nil || plan.Outgoing != nil
	var kinds uint32 // of all stages
	var drops Drop
	for _, program := range plan.Programs {
		for _, segment := range program {
			for _, a := range segment.Body {
				kinds |= 1 << a.Kind()
				drops |= a.Drop()
				if stage := a.Stage(); stage < o.stages {
					o.sites[stage].kinds |= 1 << a.Kind()
				}
			}
		}
	}
	o.transfers = kinds&(1<<SendF|1<<RecvF|1<<SendB|1<<RecvB) != 0
	o.marked = o.marked || drops != 0
	o.reduces = kinds>>ReduceGrad&1 == 1
	o.quantizes = kinds>>Quantize&1 == 1 || drops&weightBits != 0
	return o
}

// set returns the index of the set of microbatches of a stage and a kind up to WaitB.
func (o *outline) set(stage int, kind Kind) int { return stage*kindsPerStage + int(kind) }

// isFirst reports whether nothing comes before the stage, isLast whether nothing
// comes behind it: it is the first, or the last, of its copy of the model.
func (o *outline) isFirst(stage int) bool { return o.sites[stage].first }
func (o *outline) isLast(stage int) bool  { return o.sites[stage].last }

// hasBackward is Plan.HasBackward.
func (o *outline) hasBackward(stage int) bool { return o.sites[stage].backward }

// includes reports whether the plan has an action of this kind of the stage.
func (o *outline) includes(stage int, kind Kind) bool { return o.sites[stage].kinds>>kind&1 == 1 }

// span is Plan.Span.
func (o *outline) span(stage int) run { return o.sites[stage].span }

// crosses reports whether the edge from a stage to the next one leads to another
// rank. There is no edge before the first stage of a copy and behind the last one.
func (o *outline) crosses(stage int) bool { return stage >= 0 && o.sites[stage].crosses }

// born calls yield with each stage for which an action of this stage and kind
// brings the input onto the rank: the stage behind a local forward, the stage of
// a receive, and a forward itself where nothing brings its input.
func (o *outline) born(stage int, kind Kind, yield func(stage int)) {
	switch kind {
	case F:
		if o.isFirst(stage) || o.crosses(stage-1) && !o.transfers {
			yield(stage)
		}
		if !o.isLast(stage) && !o.crosses(stage) {
			yield(stage + 1)
		}
	case RecvF:
		yield(stage)
	}
}

// reads returns the set of entry parts that an action reads.
func (o *outline) reads(stage int, kind Kind) uint64 {
	if o.plan.Facts == nil {
		return 0
	}
	return o.plan.Facts[stage].Reads[kind]
}

// weightBits are the drops of copies of weights.
const weightBits = DropForwardWeights | DropBackwardWeights

// weightDrops are the same one by one: what drops the copies that forwards read, and those that backwards read.
var weightDrops = [...]Drop{DropForwardWeights, DropBackwardWeights}

// copiesWeights returns which copies a QUANTIZE of the stage makes, as what drops them.
func (o *outline) copiesWeights(stage int) Drop {
	if o.hasBackward(stage) {
		return weightBits
	}
	return DropForwardWeights
}

// readsWeights returns which copies of the stage's weights an action of the kind reads,
// as what drops them. W reads none: a gradient of weights does not depend on them.
func (o *outline) readsWeights(stage int, kind Kind) Drop {
	switch {
	case !o.includes(stage, Quantize):
		return 0
	case kind == F:
		return DropForwardWeights
	case kind != B && kind != I:
		return 0
	case o.plan.Facts != nil && o.plan.Facts[stage].Recomputes:
		return weightBits
	}
	return DropBackwardWeights
}
