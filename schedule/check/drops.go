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
	copies []modelCopy // by copy of the model

	// Indices of the walk's sets. The first sets, from index 0, hold the actions that are done, by
	// the rank's stages and by kind.
	totals   int // by the rank's stages and by kind: all actions of the plan
	live     int // by the rank's stages: microbatches in flight
	outgoing int // by the rank's stages: microbatches whose output waits to be sent or is in flight; then the corresponding sets for gradients

	computations  [][]int         // by the rank's stages: the sets of their computations, the latest kind first
	required      []schedule.Drop // by the rank's stages and by kind: the handle drops that an action must have
	livePeaks     []peak          // by the rank's stages
	outgoingPeaks []peak
	entryPeak     peak
}

// modelCopy is the part of a copy of the model that is on a rank.
type modelCopy struct {
	stage int    // one of the copy's stages on the rank, or -1 if there is none
	held  uint64 // the entry parts that actions on the rank read, one bit each

	// Indices of sets of microbatches.
	entry   int // microbatches with an entry part that has not been dropped yet
	started int // microbatches of which an action has run on the rank
	retired int // microbatches that have retired on the rank
	dead    int // by part: microbatches whose part has been dropped
}

func (c *Checker) newDropVisitor(rank int) *dropVisitor {
	stages := len(c.On[rank])
	n := stages * passes.KindsPerStage
	v := &dropVisitor{rankWalk: rankWalk{c: c, rank: rank}, totals: n, live: 2 * n, livePeaks: make([]peak, stages), outgoingPeaks: make([]peak, stages),
		entryPeak: peak{at: location{rank: rank}}, computations: make([][]int, stages), required: make([]schedule.Drop, n)}
	v.copies = make([]modelCopy, max(c.Plan.Placement.Copies, 1))
	v.outgoing = v.live + stages
	sets := v.outgoing + 2*stages
	for i := range v.copies {
		v.copies[i] = modelCopy{stage: -1, entry: sets, started: sets + 1, retired: sets + 2, dead: sets + 3}
		sets += 3 + schedule.MaxParts
	}
	v.Walk = passes.NewWalk(&c.Outline, sets)
	for i, stage := range c.On[rank] {
		for kind := range passes.KindsPerStage {
			v.Put(n+i*passes.KindsPerStage+kind, c.totals[c.Set(stage, schedule.Kind(kind))])
		}
		model := v.copyOf(stage)
		model.stage = stage
		for kind := schedule.WaitB; kind >= schedule.F; kind-- {
			if len(c.totals[c.Set(stage, kind)]) > 0 {
				model.held |= c.Reads(stage, kind)
				if kind.Compute() {
					v.computations[i] = append(v.computations[i], v.set(stage, kind))
				}
			}
			for _, h := range handles {
				if due, _, _ := c.dropsAt(h.bit, stage, kind); due {
					v.required[i*passes.KindsPerStage+int(kind)] |= h.bit
				}
			}
		}
	}
	return v
}

// copyOf returns the rank's part of a stage's copy of the model.
func (v *dropVisitor) copyOf(stage int) *modelCopy { return &v.copies[v.c.Sites[stage].Copy] }

// set returns the index of the set for a stage and kind.
func (v *dropVisitor) set(stage int, kind schedule.Kind) int {
	return v.c.Place[stage]*passes.KindsPerStage + int(kind)
}

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
	if v.Has(v.copyOf(stage).retired, mb) {
		v.fault(a, mb, BadRetire, "late", "runs after its microbatch has retired here; put r only on the last action of the microbatch.")
	}
	if kind > schedule.WaitB { // checkOffloads checks actions that move saved state
		return
	}
	v.countCreated(a, mb)
	if (a.Drop()^v.required[v.set(stage, kind)])&handleBits != 0 {
		v.checkHandles(a, mb)
	}
	v.checkParts(a, mb)
	v.finish(a, mb)
	if a.Drop()&schedule.Retire != 0 && !v.Add(v.copyOf(stage).retired, mb) {
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
		if reads>>part&1 == 1 && v.Has(model.dead+part, mb) {
			fault(UseAfterDrop, part, "which was dropped before")
		}
		if dropped>>part&1 == 0 {
			continue
		}
		if reads>>part&1 == 0 {
			fault(MisplacedDrop, part, "which it does not read")
		}
		if !v.Add(model.dead+part, mb) {
			fault(DoubleDrop, part, "which was dropped before")
		}
	}
	if dropped == 0 {
		return
	}
	for part := 0; model.held>>part != 0; part++ {
		if model.held>>part&1 == 1 && !v.Has(model.dead+part, mb) {
			return
		}
	}
	v.Remove(model.entry, mb)
}

// verbs maps the code of a fault to a verb that describes what the action does with the part.
var verbs = map[Code]string{UseAfterDrop: "reads", MisplacedDrop: "drops", DoubleDrop: "drops"}

// checkEnd adds faults for parts that were never dropped and microbatches that never retired.
func (v *dropVisitor) checkEnd() {
	for _, model := range v.copies {
		if model.stage < 0 {
			continue
		}
		all := v.Get(v.set(model.stage, schedule.F))
		for part := 0; model.held>>part != 0; part++ {
			if model.held>>part&1 == 0 {
				continue
			}
			for _, r := range all.Minus(v.Get(model.dead + part)) {
				v.c.planFault(MissingDrop, v.rank, "Rank %d never drops part %d of the entry of %v; let the last action that reads it drop it.", v.rank, part, r)
			}
		}
		for _, r := range all.Minus(v.Get(model.retired)) {
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
	for _, stage := range v.c.On[v.rank] {
		for _, w := range waited {
			for _, r := range v.Get(v.set(stage, w.send)).Minus(v.Get(v.set(stage, w.wait))) {
				v.c.planFault(MissingDrop, v.rank, "Rank %d never waits for %d%v of %v; add a %v with drop t for each.", v.rank, stage, w.send, r, w.wait)
			}
		}
	}
}
