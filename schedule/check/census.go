package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// countActions counts the actions of all ranks and compares them with the actions that the plan
// must have. It also records whether every rank runs its actions after their dependencies on that
// rank.
func (c *Checker) countActions() {
	c.uneven = make([]bool, 2*c.Stages)
	sets := c.Stages * passes.KindsPerStage
	v := &censusVisitor{rankWalk: c.walk(sets + c.Copies()), spans: sets, demands: newDemands(&c.Outline, sets)}
	c.putSpans(v.sets, sets)
	v.walk.Every = c.Plan.Slices
	for rank := range c.Plan.Programs {
		if !v.run(rank, v.visit) {
			c.aborted = true
			return
		}
	}
	c.totals, c.ordered = v.sets.Upto(sets), !v.early
	if c.aborted {
		return // the missing actions may be the misplaced ones
	}
	if c.reportEmptyStages(); c.aborted {
		return
	}
	for stage := range c.Stages {
		c.countStage(stage)
	}
}

// reportEmptyStages adds a fault if some stages, but not all, have no actions, for example because a
// file lacks a row. All other faults would follow from this one.
func (c *Checker) reportEmptyStages() {
	var names []string
	for stage := range c.Stages {
		if span := c.Span(stage); c.Sites[stage].Kinds == 0 && span.Hi > span.Lo {
			names = append(names, strconv.Itoa(stage))
		}
	}
	if n := len(names); n > 0 && n < c.Stages {
		const most = 16
		if n > most {
			names = append(names[:most], fmt.Sprintf("%d more", n-most))
		}
		c.aborted = true
		c.planFault(Missing, -1, "These stages have no actions: %s. Add the programs of their ranks, or correct the number of stages.", strings.Join(names, ", "))
	}
}

// censusVisitor is the visitor that records which actions the plan has.
type censusVisitor struct {
	rankWalk
	spans   int // the index of the set of the first model copy's microbatches; the sets of the other copies follow
	demands demands
	early   bool // an action precedes one of its dependencies, or the dependency is missing
}

func (v *censusVisitor) visit(a schedule.Action, mb int64) {
	c, sets := v.c, v.sets
	stage, kind := a.Stage(), a.Kind()
	switch {
	case stage >= c.Stages:
		c.aborted = true
		v.fault(a, mb, UnknownStage, "", "belongs to an unknown stage; stages are 0 to %d.", c.Stages-1)
		return
	case kind.OfStage():
		if mb != 0 {
			v.fault(a, mb, UnknownMicrobatch, "", "has no microbatch of its own; omit the microbatch.")
		}
	case !sets.Has(v.spans+c.Sites[stage].Copy, mb):
		c.aborted = true
		v.noMicrobatch(a, mb)
		return
	}
	if !c.allows(stage, kind) {
		v.fault(a, mb, Unexpected, "", "must not be in this plan: %s.", c.ruledOut(stage, kind))
		return
	}
	if home := c.Plan.Placement.Rank[stage]; home != v.rank {
		c.aborted = true
		v.fault(a, mb, WrongRank, "", "is on the wrong rank; move it to rank %d, which has stage %d.", home, stage)
	}
	if a.Joined() {
		v.checkJoin(a, mb)
	}
	if kind > schedule.WaitB {
		return // a plan may repeat such an action
	}

	set := c.Set(stage, kind)
	if !v.demands.met(sets, set, mb) {
		v.early = true
	}
	if !sets.Add(set, mb) {
		if e := passes.Edge(a); e >= 0 {
			c.uneven[e] = true
		}
		v.fault(a, mb, Twice, "", "is a duplicate; remove one of the two.")
	}
	if c.Includes(stage, schedule.B) && (c.Includes(stage, schedule.I) || c.Includes(stage, schedule.W)) {
		v.checkMix(a, mb)
	}
}

// noMicrobatch adds a fault for an action whose stage does not run its microbatch.
func (v *censusVisitor) noMicrobatch(a schedule.Action, mb int64) {
	if span := v.c.Span(a.Stage()); mb >= 0 && mb < v.c.Microbatches {
		v.fault(a, mb, UnknownMicrobatch, "", "belongs to a microbatch of another copy of the model; this copy runs microbatches %d to %d.", span.Lo, span.Hi-1)
		return
	}
	v.fault(a, mb, UnknownMicrobatch, "", "belongs to an unknown microbatch; microbatches are 0 to %d.", v.c.Microbatches-1)
}

// checkMix adds a fault if a stage and microbatch have both a full backward and one of its halves.
func (v *censusVisitor) checkMix(a schedule.Action, mb int64) {
	has := func(kind schedule.Kind) bool { return v.sets.Has(v.c.Set(a.Stage(), kind), mb) }
	switch a.Kind() {
	case schedule.B:
		if has(schedule.I) || has(schedule.W) {
			v.fault(a, mb, Mixed, "", "is a full backward that conflicts with an I or W of the same stage and microbatch; use B, or I and W.")
		}
	case schedule.I, schedule.W:
		if has(schedule.B) {
			v.fault(a, mb, Mixed, "", "conflicts with a full backward, B, of the same stage and microbatch; use B, or I and W.")
		}
	}
}

// checkJoin adds a fault if a joined action may not overlap with the next action.
func (v *censusVisitor) checkJoin(a schedule.Action, mb int64) {
	body := v.walk.Body
	if v.walk.Index+1 == len(body) {
		v.fault(a, mb, BadJoin, "", "is joined with the next action, but is the last action of its segment; put both into one body.")
		return
	}
	a, next := a.Shift(int(mb)-a.Microbatch()), body[v.walk.Index+1].Shift(int(mb)-a.Microbatch())
	if !a.Kind().Compute() || !next.Kind().Compute() || next.Joined() || v.c.entangled(a, next) {
		v.fault(a, mb, BadJoin, "", "is joined with %v; a join needs two computations that do not depend on each other.", next)
	}
}

// entangled reports whether one of two computations depends on the other, or whether both have the
// same stage and microbatch.
func (c *Checker) entangled(a, b schedule.Action) bool {
	if b.Stage() >= c.Stages {
		return false // another check reports the stage
	}
	return a.Stage() == b.Stage() && a.Microbatch() == b.Microbatch() || c.DependsOn(a, b) || c.DependsOn(b, a)
}

// findAllowed computes the kinds of actions that the plan may have for each stage.
func (c *Checker) findAllowed() {
	c.allowed = make([]uint32, c.Stages)
	for stage := range c.allowed {
		for kind := schedule.F; int(kind) < schedule.NumKinds; kind++ {
			if c.ruledOut(stage, kind) == "" {
				c.allowed[stage] |= 1 << kind
			}
		}
	}
}

// putSpans initializes one set per copy of the model with the microbatches of the copy. first is the
// index of the first of these sets.
func (c *Checker) putSpans(sets *repeats.Sets, first int) {
	for copy := range c.Copies() {
		sets.Put(first+copy, repeats.Runs{c.Span(copy * c.Plan.Placement.Depth())})
	}
}

// allows reports whether the plan may have an action of the kind for the stage.
func (c *Checker) allows(stage int, kind schedule.Kind) bool {
	return c.allowed[stage]>>kind&1 == 1
}

// ruledOut returns the reason why the plan must not have an action of the kind for the stage, or ""
// if it may have one.
func (c *Checker) ruledOut(stage int, kind schedule.Kind) string {
	switch kind {
	case schedule.F, schedule.Unshard, schedule.Reshard:
		return ""
	case schedule.B, schedule.I, schedule.W:
		return c.noBackward(stage, kind)
	case schedule.SendF, schedule.WaitF, schedule.RecvB:
		if !c.Crosses(stage) {
			return "no rank boundary follows this stage"
		}
		if kind == schedule.RecvB && !c.HasBackward(stage) {
			return "the stage has no backward, so no gradient comes back"
		}
	case schedule.RecvF, schedule.SendB, schedule.WaitB:
		if !c.Crosses(stage - 1) {
			return "no rank boundary precedes this stage"
		}
		if kind != schedule.RecvF && !c.HasBackward(stage-1) {
			return "the previous stage has no backward, so no gradient goes back"
		}
	case schedule.ReduceGrad, schedule.ZeroGrad, schedule.WaitReduce:
		return c.noGradients(stage)
	case schedule.Quantize:
		if c.Plan.StageInfo != nil && !c.Plan.StageInfo[stage].Quantizes {
			return "the stage computes with its weights, not with copies of them"
		}
		return ""
	case schedule.Offload, schedule.WaitOffload, schedule.Reload:
		switch {
		case c.Plan.Runtime.Posts():
			return "PyTorch cannot move saved state to far memory"
		case !c.HasBackward(stage):
			return "the stage has no backward, so nothing takes its saved state later"
		case c.Plan.OffloadSlots == nil || c.Plan.OffloadSlots[stage] == 0:
			return "OffloadSlots lists no slot of the stage for far memory"
		}
		return ""
	default:
		return fmt.Sprintf("there is no rule for %v yet", kind)
	}
	if !c.Transfers { // the kind is a wait: a plan with a send or a receive has Transfers
		return "the plan sends nothing"
	}
	return ""
}

// noGradients returns the reason why the stage has no weight gradients, or "" if it has some.
func (c *Checker) noGradients(stage int) string {
	switch {
	case c.Plan.Mode == schedule.ForwardOnly:
		return "a forward-only plan has no gradients"
	case c.Plan.IsFrozen(stage):
		return "the stage is frozen and has no weight gradient"
	}
	return ""
}

// noBackward returns the reason why the stage has no backward of this kind, or "" if it may have
// one.
func (c *Checker) noBackward(stage int, kind schedule.Kind) string {
	switch {
	case c.Plan.Mode == schedule.ForwardOnly:
		return "a forward-only plan has no backward"
	case !c.HasBackward(stage):
		return "neither this stage nor any before it trains, so it has no backward"
	case c.Plan.IsFrozen(stage) && kind == schedule.B:
		return "the stage is frozen, so its backward is I alone"
	case c.Plan.IsFrozen(stage) && kind == schedule.W:
		return "the stage is frozen and has no weight gradient"
	case kind != schedule.B && !c.Plan.IsFrozen(stage) && c.Plan.StageInfo != nil && !c.Plan.StageInfo[stage].Split:
		return "the stage does not split its backward, so it runs B"
	}
	return ""
}

// countStage compares the actions of a stage in the plan with the actions that the plan must have.
func (c *Checker) countStage(stage int) {
	all := repeats.Runs{c.Span(stage)}
	has := func(kind schedule.Kind) repeats.Runs { return c.totals[c.Set(stage, kind)] }

	c.missing(stage, schedule.F, all.Minus(has(schedule.F)))
	switch {
	case !c.HasBackward(stage):
	case c.Plan.IsFrozen(stage):
		c.missing(stage, schedule.I, all.Minus(has(schedule.I)))
	default:
		c.missing(stage, schedule.B, all.Minus(has(schedule.B), has(schedule.I), has(schedule.W)))
		c.missing(stage, schedule.W, has(schedule.I).Minus(has(schedule.B), has(schedule.W)))
		c.missing(stage, schedule.I, has(schedule.W).Minus(has(schedule.B), has(schedule.I)))
	}
	if c.Reduces && !c.Includes(stage, schedule.ReduceGrad) && c.allows(stage, schedule.ReduceGrad) && len(has(schedule.B))+len(has(schedule.W)) > 0 {
		c.missing(stage, schedule.ReduceGrad, repeats.Runs{{Lo: 0, Hi: 1}})
	}
	if len(has(schedule.F)) > 0 && c.Plan.StageInfo != nil && c.Plan.StageInfo[stage].Quantizes && !c.Includes(stage, schedule.Quantize) {
		c.missing(stage, schedule.Quantize, repeats.Runs{{Lo: 0, Hi: 1}})
	}
	if !c.Transfers {
		return
	}
	for kind := schedule.SendF; kind <= schedule.RecvB; kind++ {
		if c.allows(stage, kind) {
			lacking, e := all.Minus(has(kind)), passes.Edge(schedule.NewAction(kind, stage, 0))
			c.uneven[e] = c.uneven[e] || len(lacking) > 0
			c.missing(stage, kind, lacking)
		}
	}
	for _, w := range waited {
		if c.Retires {
			c.missing(stage, w.wait, has(w.send).Minus(has(w.wait)))
		}
	}
}

// waited lists the kinds of sends with the kinds of their waits.
var waited = [...]struct{ send, wait schedule.Kind }{{schedule.SendF, schedule.WaitF}, {schedule.SendB, schedule.WaitB}}

// missing adds a fault for each run of microbatches that lack the stage's action of the kind.
func (c *Checker) missing(stage int, kind schedule.Kind, lacking repeats.Runs) {
	rank := c.Plan.Placement.Rank[stage]
	for i, r := range lacking {
		if c.listed[Missing] >= maxFaults {
			c.addMore(Missing, len(lacking)-i)
			return
		}
		also := ""
		if r.Hi > r.Lo+1 {
			also = fmt.Sprintf(", nor the same action of any microbatch up to %d", r.Hi-1)
		}
		c.Add(Fault{Code: Missing, Rank: rank, Position: -1, Action: schedule.NewAction(kind, stage, int(r.Lo)),
			Text: fmt.Sprintf("Rank %d never runs %v%s; add it.", rank, schedule.NewAction(kind, stage, int(r.Lo)), also)})
	}
}
