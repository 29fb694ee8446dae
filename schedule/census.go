package schedule

import "fmt"

// census counts the actions of all ranks and compares them with those that the
// plan must have.
func (c *checker) census() {
	v := &census{c: c, walk: newWalk(c.stages * kindsPerStage)}
	for rank, program := range c.plan.Programs {
		v.rank = rank
		v.program(program, false, v)
		if c.unproved(&v.walk, rank) {
			c.lost = true
			return
		}
	}
	c.totals = v.sets
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
	c    *checker
	rank int
}

func (v *census) repeats(int64) {}

func (v *census) visit(a Action, mb int64) {
	c, w := v.c, &v.walk
	stage, kind := a.Stage(), a.Kind()
	fault := func(code Code, format string, args ...any) {
		c.at(w, v.rank, a, mb, code, "", format, args...)
	}
	if stage >= c.stages {
		c.lost = true
		fault(UnknownStage, "is of a stage that is not there; stages are 0 to %d.", c.stages-1)
		return
	}
	if !w.within(mb, c.microbatches) {
		if !w.trial {
			c.lost = true
		}
		fault(UnknownMicrobatch, "is of a microbatch that is not there; microbatches are 0 to %d.", c.microbatches-1)
		return
	}
	if why := c.ruledOut(stage, kind); why != "" {
		fault(Unexpected, "must not be in this plan: %s.", why)
		return
	}
	if home := c.plan.Placement.Rank[stage]; home != v.rank {
		c.lost = true
		fault(WrongRank, "is on the wrong rank; move it to rank %d, which has stage %d.", home, stage)
	}

	if !w.add(c.set(stage, kind), mb) {
		fault(Twice, "is there already; take one of the two out.")
	}
	switch kind {
	case B:
		if w.has(c.set(stage, I), mb) || w.has(c.set(stage, W), mb) {
			fault(Mixed, "is a full backward beside an I or W of the same stage and microbatch; use B, or I and W.")
		}
	case I, W:
		if w.has(c.set(stage, B), mb) {
			fault(Mixed, "is beside a B, a full backward, of the same stage and microbatch; use B, or I and W.")
		}
	}
	if a.Joined() {
		v.checkJoin(a, mb)
	}
}

// checkJoin looks at the action that a joined one overlaps with.
func (v *census) checkJoin(a Action, mb int64) {
	body := v.c.plan.Programs[v.rank][v.segment].Body
	if v.index+1 == len(body) {
		v.c.at(&v.walk, v.rank, a, mb, BadJoin, "", "is joined with the next action, but its segment ends with it; put both into one body.")
		return
	}
	next := body[v.index+1]
	if !a.Kind().Compute() || !next.Kind().Compute() || next.Joined() || next.Stage() == a.Stage() && next.Microbatch() == a.Microbatch() {
		v.c.at(&v.walk, v.rank, a, mb, BadJoin, "", "is joined with %v; a join is of two computations that do not need each other.",
			next.Shift(int(mb)-a.Microbatch()))
	}
}

// ruledOut says why a plan like this one has no action of the kind on the stage,
// "" where it may have one.
func (c *checker) ruledOut(stage int, kind Kind) string {
	switch kind {
	case F:
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
	default:
		return fmt.Sprintf("there is no rule for %v yet", kind)
	}
	if !c.transfers { // only a wait comes here then; where there are transfers, its send must be there too
		return "the plan sends nothing"
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
	all := runs{{0, c.microbatches}}
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
	if !c.transfers {
		return
	}
	for _, kind := range []Kind{SendF, RecvF, SendB, RecvB} {
		if c.ruledOut(stage, kind) == "" {
			c.missing(stage, kind, all.minus(has(kind)))
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
