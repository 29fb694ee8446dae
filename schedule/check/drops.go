package check

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// checkDrops proves, rank by rank, that nothing is used after its drop and that everything is
// dropped once. If bounds is set and there are no other faults, it also proves that the numbers in
// flight do not exceed those that the plan declares.
func (c *Checker) checkDrops(bounds bool) {
	faults := len(c.Faults)
	for rank := range c.Plan.Programs {
		v := c.newDropVisitor(rank)
		if !v.run(rank, v.visit) {
			continue
		}
		v.checkEnd()
		if bounds && len(c.Faults) == faults {
			v.checkBounds()
		}
	}
}

// dropVisitor is the visitor that tracks lifetimes on a rank. handles.go checks the drops of handles,
// this file checks the drops of entry parts, and bounds.go checks the numbers in flight.
type dropVisitor struct {
	rankWalk
	stages    []heldStage // the stages of the rank
	copies    []modelCopy // by copy of the model
	entryPeak peak
}

// heldStage is a stage of the rank. Its methods return the indices of the stage's sets of microbatches.
type heldStage struct {
	first        int                                 // the index of the first set
	computations []schedule.Kind                     // the kinds of its computations, the latest first
	required     [passes.KindsPerStage]schedule.Drop // by kind: the handle drops that an action must have
	livePeak     peak
	outgoingPeak peak
}

// The sets of a stage are, for each kind, the microbatches whose action is done and those that have an
// action in the plan, then the microbatches in flight, and those whose output, or whose gradient, waits
// to be sent or is in flight.
func (s *heldStage) done(kind schedule.Kind) int { return s.first + int(kind) }
func (s *heldStage) planned(kind schedule.Kind) int {
	return s.first + passes.KindsPerStage + int(kind)
}
func (s *heldStage) live() int      { return s.first + 2*passes.KindsPerStage }
func (s *heldStage) outputs() int   { return s.live() + 1 }
func (s *heldStage) gradients() int { return s.live() + 2 }

const setsOfStage = 2*passes.KindsPerStage + 3

// modelCopy is the part of a copy of the model that is on a rank. Its methods return the indices of its
// sets of microbatches.
type modelCopy struct {
	first int        // the index of the first set
	stage *heldStage // one of the copy's stages on the rank, or nil if there is none
	held  uint64     // the entry parts that actions on the rank read, one bit each
}

// A copy has these sets of microbatches: entry has those with an entry part that has not been dropped
// yet, started those that have run an action on the rank, and retired those that have ended there. For
// each entry part, one more set has the microbatches whose part has been dropped.
func (m *modelCopy) entry() int           { return m.first }
func (m *modelCopy) started() int         { return m.first + 1 }
func (m *modelCopy) retired() int         { return m.first + 2 }
func (m *modelCopy) dropped(part int) int { return m.first + 3 + part }

const setsOfCopy = 3 + schedule.MaxParts

func (c *Checker) newDropVisitor(rank int) *dropVisitor {
	stages := c.On[rank]
	v := &dropVisitor{rankWalk: c.walk(setsOfStage*len(stages) + setsOfCopy*c.Copies()), stages: make([]heldStage, len(stages)),
		copies: make([]modelCopy, c.Copies()), entryPeak: peak{at: location{rank: rank}}}
	for i := range v.copies {
		v.copies[i].first = setsOfStage*len(stages) + setsOfCopy*i
	}
	for i, stage := range stages {
		own, model := &v.stages[i], v.copyOf(stage)
		own.first, model.stage = setsOfStage*i, own
		for kind := schedule.WaitB; kind >= schedule.F; kind-- {
			planned := c.totals[c.Set(stage, kind)]
			v.sets.Put(own.planned(kind), planned)
			if len(planned) > 0 {
				model.held |= c.Reads(stage, kind)
				if kind.Compute() {
					own.computations = append(own.computations, kind)
				}
			}
			for _, h := range handles {
				if due, _, _ := c.dropsAt(h.bit, stage, kind); due {
					own.required[kind] |= h.bit
				}
			}
		}
	}
	return v
}

// stage returns the state of a stage of the rank.
func (v *dropVisitor) stage(stage int) *heldStage { return &v.stages[v.c.Place[stage]] }

// copyOf returns the rank's part of a stage's copy of the model.
func (v *dropVisitor) copyOf(stage int) *modelCopy { return &v.copies[v.c.Sites[stage].Copy] }

func (v *dropVisitor) visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if !c.allows(stage, kind) {
		return
	}
	if kind.OfStage() {
		if a.Drop() != 0 {
			v.fault(a, mb, MisplacedDrop, "stage", "drops %v, but has no microbatch; remove its drops.", a.Drop())
		}
		return
	}
	if v.sets.Has(v.copyOf(stage).retired(), mb) {
		v.fault(a, mb, BadRetire, "late", "runs after its microbatch has retired here; put r only on the last action of the microbatch.")
	}
	if kind > schedule.WaitB { // checkOffloads checks actions that move saved state
		return
	}
	v.countCreated(a, mb)
	if (a.Drop()^v.stage(stage).required[kind])&handleBits != 0 {
		v.checkHandles(a, mb)
	}
	v.checkParts(a, mb)
	v.finish(a, mb)
	if a.Drop()&schedule.Retire != 0 && !v.sets.Add(v.copyOf(stage).retired(), mb) {
		v.fault(a, mb, BadRetire, "again", "retires its microbatch, which has retired here already; put r only on the last action.")
	}
	if odd := a.Drop() &^ schedule.KnownDrops; odd != 0 {
		v.fault(a, mb, MisplacedDrop, "odd", "has drop bits %#x, which are undefined; clear them.", uint16(odd))
	}
}

// checkParts tracks the parts of the microbatch's entry (L1).
func (v *dropVisitor) checkParts(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	model := v.copyOf(stage)
	reads, dropped := v.c.Reads(stage, kind), uint64(0)
	if v.c.Plan.Parts != nil && a.Drop()&schedule.DropParts != 0 {
		dropped = v.c.Plan.Parts[stage][kind]
	}
	if reads|dropped == 0 && a.Drop()&schedule.DropParts == 0 {
		return
	}
	if a.Drop()&schedule.DropParts != 0 && dropped == 0 {
		v.fault(a, mb, MisplacedDrop, "parts", "drops entry parts, but the plan's table lists none for %d%v; remove drop p.", stage, kind)
	}
	fault := func(code Code, part int, what string) {
		v.fault(a, mb, code, fmt.Sprint("part ", part), "%s part %d of its entry, %s; let the last action that reads it drop it.", verbs[code], part, what)
	}
	for part := 0; (reads|dropped)>>part != 0; part++ {
		if reads>>part&1 == 1 && v.sets.Has(model.dropped(part), mb) {
			fault(UseAfterDrop, part, "which was dropped before")
		}
		if dropped>>part&1 == 0 {
			continue
		}
		if reads>>part&1 == 0 {
			fault(MisplacedDrop, part, "which it does not read")
		}
		if !v.sets.Add(model.dropped(part), mb) {
			fault(DoubleDrop, part, "which was dropped before")
		}
	}
	if dropped == 0 {
		return
	}
	for part := 0; model.held>>part != 0; part++ {
		if model.held>>part&1 == 1 && !v.sets.Has(model.dropped(part), mb) {
			return
		}
	}
	v.sets.Remove(model.entry(), mb)
}

// verbs maps the code of a fault to a verb that describes what the action does with the part.
var verbs = map[Code]string{UseAfterDrop: "reads", MisplacedDrop: "drops", DoubleDrop: "drops"}

// checkEnd adds faults for parts that were never dropped and microbatches that never retired.
func (v *dropVisitor) checkEnd() {
	for i := range v.copies {
		model := &v.copies[i]
		if model.stage == nil {
			continue
		}
		all := v.sets.Get(model.stage.done(schedule.F))
		for part := 0; model.held>>part != 0; part++ {
			if model.held>>part&1 == 0 {
				continue
			}
			for _, r := range all.Minus(v.sets.Get(model.dropped(part))) {
				v.c.planFault(MissingDrop, v.rank, "Rank %d never drops part %d of the entry of %v; let the last action that reads it drop it.", v.rank, part, r)
			}
		}
		for _, r := range all.Minus(v.sets.Get(model.retired())) {
			v.c.planFault(BadRetire, v.rank, "Rank %d never retires %v; put r on the last action of each microbatch.", v.rank, r)
		}
	}
	v.checkWaits()
}

// checkWaits adds faults for sends without a wait (L4), unless countStage has reported them.
func (v *dropVisitor) checkWaits() {
	if v.c.Retires {
		return
	}
	for i, stage := range v.c.On[v.rank] {
		own := &v.stages[i]
		for _, w := range waited {
			for _, r := range v.sets.Get(own.done(w.send)).Minus(v.sets.Get(own.done(w.wait))) {
				v.c.planFault(MissingDrop, v.rank, "Rank %d never waits for %d%v of %v; add a %v with drop t for each.", v.rank, stage, w.send, r, w.wait)
			}
		}
	}
}
