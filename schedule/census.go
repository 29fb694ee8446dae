package schedule

import "fmt"

// census counts the actions of all ranks and compares them with those that the
// plan must have. In passing it sees whether they stand in order.
func (c *checker) census() {
	c.uneven = make([]bool, 2*c.stages)
	v := &census{c: c, walk: newWalk(c.stages * kindsPerStage), demands: newDemands(&c.outline)}
	v.every = c.plan.Slices
	for rank, program := range c.plan.Programs {
		v.rank = rank
		v.program(program, false, v)
		if c.unproved(&v.walk, rank) {
			c.lost = true
			return
		}
	}
	c.looked(&v.walk)
	c.totals, c.ordered = v.sets, !v.early
	if c.lost {
		return // what is missing may be what is in the wrong place
	}
	for stage := range c.stages {
		c.countStage(stage)
	}
}

// census is the visitor that counts.
type census struct {
	walk
	c       *checker
	rank    int
	demands demands
	early   bool // an action stands before one that it needs, or lacks it
}

func (v *census) repeats(int64) {}

func (v *census) visit(a Action, mb int64) {
	c, w := v.c, &v.walk
	stage, kind := a.Stage(), a.Kind()
	switch {
	case stage >= c.stages:
		c.lost = true
		v.fault(a, mb, UnknownStage, "is of a stage that is not there; stages are 0 to %d.", c.stages-1)
		return
	case kind.ofStage():
		if mb != 0 {
			v.fault(a, mb, UnknownMicrobatch, "is of a stage alone; leave its microbatch out.")
		}
	case !w.within(mb, c.span(stage)):
		if !w.trial {
			c.lost = true
		}
		v.noMicrobatch(a, mb)
		return
	}
	if !c.allows(stage, kind) {
		v.fault(a, mb, Unexpected, "must not be in this plan: %s.", c.ruledOut(stage, kind))
		return
	}
	if home := c.plan.Placement.Rank[stage]; home != v.rank {
		c.lost = true
		v.fault(a, mb, WrongRank, "is on the wrong rank; move it to rank %d, which has stage %d.", home, stage)
	}
	if a.Joined() {
		v.checkJoin(a, mb)
	}
	if kind > WaitB {
		return // it may be there more than once
	}

	set := c.set(stage, kind)
	if !v.demands.met(w, set, mb) && !w.trial {
		v.early = true
	}
	if !w.add(set, mb) {
		if e := edge(a); e >= 0 && !w.trial {
			c.uneven[e] = true
		}
		v.fault(a, mb, Twice, "is there already; take one of the two out.")
	}
	if c.mixes(stage) {
		v.checkMix(a, mb)
	}
}

func (v *census) fault(a Action, mb int64, code Code, format string, args ...any) {
	v.c.at(&v.walk, v.rank, a, mb, code, "", format, args...)
}

// noMicrobatch adds a fault for an action of a microbatch that its stage does not have.
func (v *census) noMicrobatch(a Action, mb int64) {
	if span := v.c.span(a.Stage()); mb >= 0 && mb < v.c.microbatches {
		v.fault(a, mb, UnknownMicrobatch, "is of a microbatch that runs through another copy of the model; through this one run %d to %d.", span.lo, span.hi-1)
		return
	}
	v.fault(a, mb, UnknownMicrobatch, "is of a microbatch that is not there; microbatches are 0 to %d.", v.c.microbatches-1)
}

// checkMix looks for a full backward beside its halves.
func (v *census) checkMix(a Action, mb int64) {
	has := func(kind Kind) bool { return v.has(v.c.set(a.Stage(), kind), mb) }
	switch a.Kind() {
	case B:
		if has(I) || has(W) {
			v.fault(a, mb, Mixed, "is a full backward beside an I or W of the same stage and microbatch; use B, or I and W.")
		}
	case I, W:
		if has(B) {
			v.fault(a, mb, Mixed, "is beside a B, a full backward, of the same stage and microbatch; use B, or I and W.")
		}
	}
}

// checkJoin looks at the action that a joined one overlaps with.
func (v *census) checkJoin(a Action, mb int64) {
	body := v.c.plan.Programs[v.rank][v.segment].Body
	if v.index+1 == len(body) {
		v.fault(a, mb, BadJoin, "is joined with the next action, but its segment ends with it; put both into one body.")
		return
	}
	a, next := a.Shift(int(mb)-a.Microbatch()), body[v.index+1].Shift(int(mb)-a.Microbatch())
	if !a.Kind().Compute() || !next.Kind().Compute() || next.Joined() || v.c.entangled(a, next) {
		v.fault(a, mb, BadJoin, "is joined with %v; a join is of two computations that do not need each other.", next)
	}
}

// entangled reports whether one of two computations needs the other, or both are of
// the same stage and microbatch.
func (c *checker) entangled(a, b Action) bool {
	if a.Stage() >= c.stages || b.Stage() >= c.stages {
		return false // which is said elsewhere
	}
	return a.Stage() == b.Stage() && a.Microbatch() == b.Microbatch() || c.dependsOn(a, b) || c.dependsOn(b, a)
}

// permit finds out which kinds the plan may have of every stage.
func (c *checker) permit() {
	c.allowed = make([]uint32, c.stages)
	for stage := range c.allowed {
		for kind := F; int(kind) < NumKinds; kind++ {
			if c.ruledOut(stage, kind) == "" {
				c.allowed[stage] |= 1 << kind
			}
		}
	}
}

// allows reports whether the plan may have an action of the kind of the stage.
func (c *checker) allows(stage int, kind Kind) bool {
	return c.allowed[stage]>>kind&1 == 1
}

// mixes reports whether the plan has full backwards of the stage and halves too.
func (c *checker) mixes(stage int) bool {
	return c.includes(stage, B) && (c.includes(stage, I) || c.includes(stage, W))
}

// ruledOut says why a plan like this one has no action of the kind on the stage,
// "" where it may have one.
func (c *checker) ruledOut(stage int, kind Kind) string {
	switch kind {
	case F, Unshard, Reshard:
		return ""
	case B, I, W:
		return c.noBackward(stage, kind)
	case SendF, WaitF, RecvB:
		if !c.crosses(stage) {
			return "nothing passes between ranks behind this stage"
		}
		if kind == RecvB && !c.hasBackward(stage) {
			return "the stage has no backward, so no gradient comes back"
		}
	case RecvF, SendB, WaitB:
		if !c.crosses(stage - 1) {
			return "nothing passes between ranks before this stage"
		}
		if kind != RecvF && !c.hasBackward(stage-1) {
			return "the stage before has no backward, so no gradient goes back"
		}
	case ReduceGrad:
		return c.noGradients(stage)
	case Quantize:
		if c.plan.Facts != nil && !c.plan.Facts[stage].Quantizes {
			return "the stage computes on its weights, and on no copies of them"
		}
		return ""
	default:
		return fmt.Sprintf("there is no rule for %v yet", kind)
	}
	if !c.transfers { // only a wait comes here then; where there are transfers, its send must be there too
		return "the plan sends nothing"
	}
	return ""
}

// noGradients says why the stage has no weight gradients, "" where it has.
func (c *checker) noGradients(stage int) string {
	switch {
	case c.plan.Mode == ForwardOnly:
		return "a forward-only plan has no gradients"
	case c.plan.frozen(stage):
		return "the stage is frozen and has no weight gradient"
	}
	return ""
}

// noBackward says why the stage has no backward of this kind.
func (c *checker) noBackward(stage int, kind Kind) string {
	switch {
	case c.plan.Mode == ForwardOnly:
		return "a forward-only plan has no backward"
	case !c.hasBackward(stage):
		return "neither this stage nor any before it trains, so it has no backward"
	case c.plan.frozen(stage) && kind == B:
		return "the stage is frozen, so its backward is I alone"
	case c.plan.frozen(stage) && kind == W:
		return "the stage is frozen and has no weight gradient"
	case kind != B && !c.plan.frozen(stage) && c.plan.Facts != nil && !c.plan.Facts[stage].Split:
		return "the stage does not split its backward, so it runs B"
	}
	return ""
}

// countStage compares what the plan has of a stage with what it must have.
func (c *checker) countStage(stage int) {
	all := runs{c.span(stage)}
	has := func(kind Kind) runs { return c.totals[c.set(stage, kind)] }

	c.missing(stage, F, all.minus(has(F)))
	switch {
	case !c.hasBackward(stage):
	case c.plan.frozen(stage):
		c.missing(stage, I, all.minus(has(I)))
	default:
		c.missing(stage, B, all.minus(has(B), has(I), has(W)))
		c.missing(stage, W, has(I).minus(has(B), has(W)))
		c.missing(stage, I, has(W).minus(has(B), has(I)))
	}
	if c.reduces && !c.includes(stage, ReduceGrad) && c.allows(stage, ReduceGrad) && len(has(B))+len(has(W)) > 0 {
		c.missing(stage, ReduceGrad, runs{{0, 1}})
	}
	if len(has(F)) > 0 && c.plan.Facts != nil && c.plan.Facts[stage].Quantizes && !c.includes(stage, Quantize) {
		c.missing(stage, Quantize, runs{{0, 1}})
	}
	if !c.transfers {
		return
	}
	for kind := SendF; kind <= RecvB; kind++ {
		if c.allows(stage, kind) {
			lacking, e := all.minus(has(kind)), edge(Act(kind, stage, 0))
			c.uneven[e] = c.uneven[e] || len(lacking) > 0
			c.missing(stage, kind, lacking)
		}
	}
}

// missing adds a fault for each run of microbatches that lack an action.
func (c *checker) missing(stage int, kind Kind, lacking runs) {
	rank := c.plan.Placement.Rank[stage]
	for i, r := range lacking {
		if len(c.faults) >= maxFaults {
			c.more += len(lacking) - i
			return
		}
		also := ""
		if r.hi > r.lo+1 {
			also = fmt.Sprintf(", nor that of any microbatch up to %d", r.hi-1)
		}
		c.add(Fault{Code: Missing, Rank: rank, Position: -1, Action: Act(kind, stage, int(r.lo)),
			Text: fmt.Sprintf("Rank %d never runs %v%s; add it.", rank, Act(kind, stage, int(r.lo)), also)})
	}
}
