package schedule

// outline is what follows from a plan's placement, mode and frozen stages, for
// the passes that go over it.
type outline struct {
	plan         *Plan
	stages       int
	microbatches int64
	first        int  // the lowest stage with a backward; stages where none has one
	transfers    bool // the plan says what is sent and received
	marked       bool // the plan says what is dropped

	on    [][]int // by rank: its stages
	place []int   // by stage: its place among those of its rank
}

// kindsPerStage is how many sets of microbatches a stage has: one for each kind up
// to WaitB, None among them.
const kindsPerStage = int(WaitB) + 1

// newOutline returns the outline of a plan whose parts fit together.
func newOutline(plan *Plan) outline {
	o := outline{plan: plan, stages: plan.Placement.Stages(), microbatches: int64(plan.Microbatches)}
	o.first = o.stages
	if plan.Mode == Training {
		o.first = firstTrained(plan.Frozen)
	}
	o.on, o.place = make([][]int, plan.Placement.Ranks), make([]int, o.stages)
	for stage, rank := range plan.Placement.Rank {
		o.place[stage] = len(o.on[rank])
		o.on[rank] = append(o.on[rank], stage)
	}
	o.marked = plan.Parts != nil || plan.Windows != nil || plan.Entries != nil
	for _, program := range plan.Programs {
		for _, segment := range program {
			for _, a := range segment.Body {
				kind := a.Kind()
				o.transfers = o.transfers || kind >= SendF && kind <= RecvB
				o.marked = o.marked || a.Drop() != 0
			}
		}
	}
	return o
}

// set returns the index of the set of microbatches of a stage and a kind up to WaitB.
func (o *outline) set(stage int, kind Kind) int { return stage*kindsPerStage + int(kind) }

// hasBackward is Plan.HasBackward.
func (o *outline) hasBackward(stage int) bool { return stage >= o.first }

// crosses reports whether the edge from a stage to the next one leads to another
// rank. There is no edge before the first stage and behind the last one.
func (o *outline) crosses(stage int) bool {
	rank := o.plan.Placement.Rank
	return stage >= 0 && stage+1 < o.stages && rank[stage] != rank[stage+1]
}

// born calls yield with each stage for which an action of this stage and kind
// brings the input onto the rank: the stage behind a local forward, the stage of
// a receive, and a forward itself where nothing brings its input.
func (o *outline) born(stage int, kind Kind, yield func(stage int)) {
	switch kind {
	case F:
		if stage == 0 || o.crosses(stage-1) && !o.transfers {
			yield(stage)
		}
		if stage+1 < o.stages && !o.crosses(stage) {
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
