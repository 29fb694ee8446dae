package check

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// checkDrops proves, rank by rank, that nothing is used after its drop and that everything is
// dropped once. If bounds is set, it also proves that no more is in flight than declared. It does
// not check bounds in a plan with other faults.
func (c *Checker) checkDrops(bounds bool) {
	faults := len(c.Faults)
	for rank := range c.Plan.Programs {
		v := c.newDropVisitor(rank)
		if !v.run(rank, v) {
			continue
		}
		v.checkEnd()
		if bounds && len(c.Faults) == faults {
			v.bounds()
		}
	}
}

// dropVisitor is the visitor that tracks lifetimes on a rank.
type dropVisitor struct {
	rankWalk
	copies []copied

	// Indices of the walk's sets. The sets from 0 hold the actions that are done, by the rank's
	// stages and by kind.
	totals   int // all actions of the plan, in the same order
	live     int // by the rank's stages: microbatches in flight
	outgoing int // by the rank's stages: microbatches whose output is waiting to be sent or in flight; then the same for gradients

	all        [][]int         // by the rank's stages: the sets of their computations, the latest kind first
	must       []schedule.Drop // by the rank's stages and by kind: the drops that such an action must have
	worst      []peak          // by the rank's stages
	worstOut   []peak
	worstEntry peak
}

// copied is the part of one copy of the model on a rank.
type copied struct {
	stage int    // one of its stages; -1 if the rank has none
	held  uint64 // the entry parts that actions on the rank read, as bits

	// Indices of sets of microbatches.
	entry   int // with an entry part that is not dropped yet
	started int // with an action that has run on the rank
	retired int
	dead    int // by part
}

// peak is the largest number in flight, and the action that reached it.
type peak struct {
	width    int64
	position int64
	action   schedule.Action
}

func (c *Checker) newDropVisitor(rank int) *dropVisitor {
	stages := len(c.On[rank])
	n := stages * passes.KindsPerStage
	v := &dropVisitor{rankWalk: rankWalk{c: c, rank: rank}, totals: n, live: 2 * n, worst: make([]peak, stages), worstOut: make([]peak, stages),
		all: make([][]int, stages), must: make([]schedule.Drop, n)}
	v.copies = make([]copied, max(c.Plan.Placement.Copies, 1))
	v.outgoing = v.live + stages
	sets := v.outgoing + 2*stages
	for i := range v.copies {
		v.copies[i] = copied{stage: -1, entry: sets, started: sets + 1, retired: sets + 2, dead: sets + 3}
		sets += 3 + schedule.MaxParts
	}
	v.Walk = passes.NewWalk(&c.Outline, sets)
	for i, stage := range c.On[rank] {
		for kind := range passes.KindsPerStage {
			v.Put(n+i*passes.KindsPerStage+kind, c.totals[c.Set(stage, schedule.Kind(kind))])
		}
		of := v.copyOf(stage)
		of.stage = stage
		for kind := schedule.WaitB; kind >= schedule.F; kind-- {
			if len(c.totals[c.Set(stage, kind)]) > 0 {
				of.held |= c.Reads(stage, kind)
				if kind.Compute() {
					v.all[i] = append(v.all[i], v.set(stage, kind))
				}
			}
			for _, h := range handles {
				if here, _, _ := c.dropsAt(h.bit, stage, kind); here {
					v.must[i*passes.KindsPerStage+int(kind)] |= h.bit
				}
			}
		}
	}
	return v
}

// copyOf returns the rank's part of the copy of the model to which a stage belongs.
func (v *dropVisitor) copyOf(stage int) *copied { return &v.copies[v.c.Sites[stage].Copy] }

// set returns the index of the set of a stage and a kind.
func (v *dropVisitor) set(stage int, kind schedule.Kind) int {
	return v.c.Place[stage]*passes.KindsPerStage + int(kind)
}

func (v *dropVisitor) Visit(a schedule.Action, mb int64) {
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
	if kind > schedule.WaitB { // it moves saved state
		return
	}
	v.countCreated(a, mb)
	if (a.Drop()^v.must[v.set(stage, kind)])&handleBits != 0 {
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

// countCreated counts the buffers that an action creates on the rank, before it frees any.
func (v *dropVisitor) countCreated(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	v.c.createdInputs(stage, kind, func(stage int) {
		i := v.c.Place[stage]
		v.Add(v.live+i, mb)
		v.measure(&v.worst[i], v.live+i, a, mb)
	})
	if set, ok := v.sends(stage, kind); ok {
		v.Add(set, mb)
		v.measure(&v.worstOut[v.c.Place[stage]], set, a, mb)
	}
	if of := v.copyOf(stage); of.held != 0 && v.Add(of.started, mb) {
		v.Add(of.entry, mb)
		v.measure(&v.worstEntry, of.entry, a, mb)
	}
}

// createdInputs calls yield with each stage whose input an action of this stage and kind creates on
// the rank: the next stage for a local forward, the stage of a receive, and the stage of a forward
// itself if no other action creates its input.
func (c *Checker) createdInputs(stage int, kind schedule.Kind, yield func(stage int)) {
	switch kind {
	case schedule.F:
		if c.IsFirst(stage) || c.Crosses(stage-1) && !c.Transfers {
			yield(stage)
		}
		if !c.IsLast(stage) && !c.Crosses(stage) {
			yield(stage + 1)
		}
	case schedule.RecvF:
		yield(stage)
	}
}

// sends returns the set of outgoing microbatches to which a computation adds its own. It returns
// false if the result is not sent.
func (v *dropVisitor) sends(stage int, kind schedule.Kind) (set int, ok bool) {
	c := v.c
	switch {
	case !c.Transfers:
		return 0, false
	case kind == schedule.F:
		return v.outgoing + c.Place[stage], c.Crosses(stage)
	case kind == schedule.B || kind == schedule.I:
		return v.outgoing + len(c.On[v.rank]) + c.Place[stage], c.Crosses(stage-1) && c.HasBackward(stage-1)
	}
	return 0, false
}

func (v *dropVisitor) measure(p *peak, set int, a schedule.Action, mb int64) {
	if width := v.Get(set).Width(); width > p.width {
		*p = peak{width, v.Position, a.Shift(int(mb) - a.Microbatch())}
	}
}

// finish records that an action is done. A microbatch is in flight on a stage until its last
// computation there; sends have their own bound.
func (v *dropVisitor) finish(a schedule.Action, mb int64) {
	place := v.c.Place[a.Stage()]
	switch a.Kind() {
	case schedule.WaitF:
		v.Remove(v.outgoing+place, mb)
	case schedule.WaitB:
		v.Remove(v.outgoing+len(v.c.On[v.rank])+place, mb)
	}
	done := v.set(a.Stage(), a.Kind())
	v.Add(done, mb)
	for _, set := range v.all[place] {
		if set != done && !v.Has(set, mb) && v.Has(v.totals+set, mb) {
			return
		}
	}
	v.Remove(v.live+place, mb)
}

// handle is a resource that a stage holds for a microbatch, and the drop bit that releases it.
type handle struct {
	bit  schedule.Drop
	what string
}

var handles = []handle{
	{schedule.DropInput, "input"}, {schedule.DropOutput, "output"}, {schedule.DropGrad, "output's gradient"}, {schedule.DropSaved, "saved state"}, {schedule.DropSent, "sent buffer"},
}

const handleBits = schedule.DropInput | schedule.DropOutput | schedule.DropGrad | schedule.DropSaved | schedule.DropSent

// phase orders the kinds of actions of a stage and microbatch by the earliest time at which they
// run.
func phase(kind schedule.Kind) int {
	switch kind {
	case schedule.RecvF:
		return 0
	case schedule.F:
		return 1
	case schedule.SendF, schedule.RecvB:
		return 2
	case schedule.WaitF:
		return 3
	case schedule.B, schedule.I:
		return 4
	case schedule.W, schedule.SendB:
		return 5
	}
	return 6
}

// dropsAt reports whether an action of the kind releases the handle of the bit, or an earlier kind
// does. It returns never if the stage has no such handle.
func (c *Checker) dropsAt(bit schedule.Drop, stage int, kind schedule.Kind) (here, earlier, never bool) {
	var last schedule.Kind // the kind that releases it
	switch bit {
	case schedule.DropInput:
		last, never = schedule.F, c.IsFirst(stage)
	case schedule.DropOutput:
		last, never = schedule.F, !c.IsLast(stage)
	case schedule.DropGrad:
		last, never = schedule.B, c.IsLast(stage) || !c.HasBackward(stage)
	case schedule.DropSaved:
		if !kind.Compute() {
			return false, false, true
		}
		last = kind // each computation takes the state saved for it
		if kind == schedule.F && c.HasBackward(stage) {
			last = schedule.B
		}
	case schedule.DropSent:
		switch kind {
		case schedule.SendF, schedule.WaitF:
			last = schedule.WaitF
		case schedule.SendB, schedule.WaitB:
			last = schedule.WaitB
		default:
			never = true
		}
	}
	return !never && phase(kind) == phase(last), phase(kind) > phase(last), never
}

// checkHandles compares the drops of inputs, outputs, gradients, saved state and sent buffers with
// the handles that this action must release.
func (v *dropVisitor) checkHandles(a schedule.Action, mb int64) {
	for _, h := range handles {
		here, earlier, never := v.c.dropsAt(h.bit, a.Stage(), a.Kind())
		dropped := a.Drop()&h.bit != 0
		switch {
		case here && !dropped:
			v.fault(a, mb, MissingDrop, h.what, "takes the %s and must drop it; give it drop %v.", h.what, h.bit)
		case !dropped || here:
		case never:
			v.fault(a, mb, MisplacedDrop, h.what, "drops the %s, but there is none to drop here; remove drop %v.", h.what, h.bit)
		case earlier:
			v.fault(a, mb, DoubleDrop, h.what, "drops the %s, which an earlier action has dropped; remove drop %v.", h.what, h.bit)
		default:
			v.fault(a, mb, UseAfterDrop, h.what, "drops the %s, which a later action uses; remove drop %v.", h.what, h.bit)
		}
	}
}

// checkParts tracks the parts of the microbatch's entry (L1).
func (v *dropVisitor) checkParts(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	of := v.copyOf(stage)
	reads, dies := v.c.Reads(stage, kind), uint64(0)
	if v.c.Plan.Parts != nil && a.Drop()&schedule.DropParts != 0 {
		dies = v.c.Plan.Parts[stage][kind]
	}
	if reads|dies == 0 && a.Drop()&schedule.DropParts == 0 {
		return
	}
	if a.Drop()&schedule.DropParts != 0 && dies == 0 {
		v.fault(a, mb, MisplacedDrop, "parts", "drops entry parts, but the plan's table lists none for %d%v; remove drop p.", stage, kind)
	}
	fault := func(code Code, part int, what string) {
		v.fault(a, mb, code, fmt.Sprint("part ", part), "%s part %d of its entry, %s; let the last action that reads it drop it.", verbs[code], part, what)
	}
	for part := 0; (reads|dies)>>part != 0; part++ {
		if reads>>part&1 == 1 && v.Has(of.dead+part, mb) {
			fault(UseAfterDrop, part, "which was dropped before")
		}
		if dies>>part&1 == 0 {
			continue
		}
		if reads>>part&1 == 0 {
			fault(MisplacedDrop, part, "which it does not read")
		}
		if !v.Add(of.dead+part, mb) {
			fault(DoubleDrop, part, "which was dropped before")
		}
	}
	if dies == 0 {
		return
	}
	for part := 0; of.held>>part != 0; part++ {
		if of.held>>part&1 == 1 && !v.Has(of.dead+part, mb) {
			return
		}
	}
	v.Remove(of.entry, mb)
}

// verbs maps the code of a fault to how the action uses a part.
var verbs = map[Code]string{UseAfterDrop: "reads", MisplacedDrop: "drops", DoubleDrop: "drops"}

// checkEnd adds faults for parts that were never dropped and microbatches that never retired.
func (v *dropVisitor) checkEnd() {
	for _, of := range v.copies {
		if of.stage < 0 {
			continue
		}
		all := v.Get(v.set(of.stage, schedule.F))
		for part := 0; of.held>>part != 0; part++ {
			if of.held>>part&1 == 0 {
				continue
			}
			for _, r := range all.Minus(v.Get(of.dead + part)) {
				v.c.planFault(MissingDrop, v.rank, "Rank %d never drops part %d of the entry of %v; let the last action that reads it drop it.", v.rank, part, r)
			}
		}
		for _, r := range all.Minus(v.Get(of.retired)) {
			v.c.planFault(BadRetire, v.rank, "Rank %d never retires %v; put r on the last action of each microbatch.", v.rank, r)
		}
	}
	v.unwaited()
}

// unwaited adds faults for sends without a wait (L4).
func (v *dropVisitor) unwaited() {
	for _, stage := range v.c.On[v.rank] {
		for _, pair := range [...]struct{ send, wait schedule.Kind }{{schedule.SendF, schedule.WaitF}, {schedule.SendB, schedule.WaitB}} {
			for _, r := range v.Get(v.set(stage, pair.send)).Minus(v.Get(v.set(stage, pair.wait))) {
				v.c.planFault(MissingDrop, v.rank, "Rank %d never waits for %d%v of %v; add a %v with drop t for each.", v.rank, stage, pair.send, r, pair.wait)
			}
		}
	}
}

// bounds compares the peaks with the bounds that the plan declares.
func (v *dropVisitor) bounds() {
	plan := v.c.Plan
	fault := func(code Code, p peak, format string, args ...any) {
		text := fmt.Sprintf("Rank %d, action %d: %v ", v.rank, p.position, p.action)
		v.c.Add(Fault{Code: code, Rank: v.rank, Position: p.position, Action: p.action, Text: text + fmt.Sprintf(format, args...)})
	}
	for i, stage := range v.c.On[v.rank] {
		if p := v.worst[i]; plan.Windows != nil && p.width > int64(plan.Windows[stage]) {
			fault(WindowExceeded, p, "has %d consecutive microbatches of stage %d in flight, but its window is %d; declare %d.",
				p.width, stage, plan.Windows[stage], p.width)
		}
		if p := v.worstOut[i]; plan.Outgoing != nil && p.width > int64(plan.Outgoing[stage]) {
			fault(OutgoingExceeded, p, "has %d consecutive microbatches of stage %d waiting to be sent or in flight, but the stage declares %d; declare %d.",
				p.width, stage, plan.Outgoing[stage], p.width)
		}
	}
	if p := v.worstEntry; plan.Entries != nil && max(p.width, 1) > int64(plan.Entries[v.rank]) {
		fault(EntriesExceeded, p, "holds %d consecutive batch entries, but the rank declares %d; declare %d.",
			p.width, plan.Entries[v.rank], max(p.width, 1))
	}
}
