package schedule

import "fmt"

// drops proves, rank by rank, that nothing is used after its drop and that
// everything is dropped once, and, where bounds is set, that no more is in
// flight than declared. Bounds mean nothing in a plan that has other faults.
func (c *checker) drops(bounds bool) {
	faults := len(c.faults)
	for rank, program := range c.plan.Programs {
		v := c.newDropping(rank)
		v.program(program, false, v)
		if c.unproved(&v.walk, rank) {
			continue
		}
		v.left()
		if bounds && len(c.faults) == faults {
			v.bounds()
		}
	}
}

// dropping is the visitor that follows what lives on a rank.
type dropping struct {
	walk
	c    *checker
	rank int
	held uint64 // the entry parts that the rank holds: those that something on it reads

	// Indices of sets. The first ones are what is done, by the rank's stages and
	// by kind.
	totals  int // what the plan has at all, in the same order
	live    int // by the rank's stages: microbatches of which something is in flight
	started int // microbatches that have had an action on the rank
	entry   int // microbatches whose entry has a part left
	retired int
	dead    int // by part

	worst      []peak // by the rank's stages
	worstEntry peak
}

// peak is the most that was in flight, and where.
type peak struct {
	width    int64
	position int64
	action   Action
}

func (c *checker) newDropping(rank int) *dropping {
	stages := len(c.on[rank])
	n := stages * kindsPerStage
	v := &dropping{c: c, rank: rank, totals: n, live: 2 * n, worst: make([]peak, stages)}
	v.started = v.live + stages
	v.entry, v.retired, v.dead = v.started+1, v.started+2, v.started+3
	v.walk = newWalk(v.dead + 64)
	for i, stage := range c.on[rank] {
		copy(v.sets[n+i*kindsPerStage:], c.totals[stage*kindsPerStage:(stage+1)*kindsPerStage])
		for kind := F; kind <= WaitB; kind++ {
			if len(c.totals[c.set(stage, kind)]) > 0 {
				v.held |= c.reads(stage, kind)
			}
		}
	}
	return v
}

// set returns the index of what is done of a stage and a kind.
func (v *dropping) set(stage int, kind Kind) int { return v.c.place[stage]*kindsPerStage + int(kind) }

func (v *dropping) repeats(int64) {}

func (v *dropping) visit(a Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if c.ruledOut(stage, kind) != "" {
		return
	}
	if v.has(v.retired, mb) {
		v.fault(a, mb, BadRetire, "late", "runs after its microbatch has retired here; let r stand on the last action of the microbatch alone.")
	}
	v.births(a, mb)
	v.checkHandles(a, mb)
	v.checkParts(a, mb)
	v.ends(a, mb)
	if a.Drop()&Retire != 0 && !v.add(v.retired, mb) {
		v.fault(a, mb, BadRetire, "again", "retires its microbatch, which has retired here already; let r stand on the last action alone.")
	}
	if odd := a.Drop() &^ knownDrops; odd != 0 {
		v.fault(a, mb, MisplacedDrop, "odd", "has drop bits %#x, which mean nothing; clear them.", uint16(odd))
	}
}

func (v *dropping) fault(a Action, mb int64, code Code, about, format string, args ...any) {
	v.c.at(&v.walk, v.rank, a, mb, code, about, format, args...)
}

// births counts what an action brings onto the rank, before it frees anything.
func (v *dropping) births(a Action, mb int64) {
	v.c.born(a.Stage(), a.Kind(), func(stage int) {
		i := v.c.place[stage]
		v.add(v.live+i, mb)
		v.measure(&v.worst[i], v.live+i, a, mb)
	})
	if v.held != 0 && v.add(v.started, mb) {
		v.add(v.entry, mb)
		v.measure(&v.worstEntry, v.entry, a, mb)
	}
}

func (v *dropping) measure(p *peak, set int, a Action, mb int64) {
	if width := v.sets[set].width(); width > p.width && !v.trial {
		*p = peak{width, v.position, a.Shift(int(mb) - a.Microbatch())}
	}
}

// ends notes that an action is done, and that its stage has let go of the
// microbatch where nothing of it is left to do.
func (v *dropping) ends(a Action, mb int64) {
	v.add(v.set(a.Stage(), a.Kind()), mb)
	first := v.set(a.Stage(), None)
	for set := first; set < first+kindsPerStage; set++ {
		if len(v.sets[v.totals+set]) > 0 && !v.has(set, mb) && v.has(v.totals+set, mb) {
			return
		}
	}
	v.remove(v.live+v.c.place[a.Stage()], mb)
}

// handle is one sort of thing that a stage holds for a microbatch.
type handle struct {
	bit  Drop
	what string
}

var handles = []handle{
	{DropInput, "input"}, {DropOutput, "output"}, {DropGrad, "output's gradient"}, {DropSaved, "saved state"}, {DropSent, "sent buffer"},
}

// phase is how late a kind runs within a stage and microbatch; a wait may run later.
func phase(kind Kind) int {
	switch kind {
	case RecvF:
		return 0
	case F:
		return 1
	case SendF, RecvB:
		return 2
	case WaitF:
		return 3
	case B, I:
		return 4
	case W, SendB:
		return 5
	}
	return 6
}

// dropsAt reports whether what the bit stands for ends at an action of the kind,
// and, where it does not, whether it ends at an earlier one; never is set where
// the stage has no such thing.
func (c *checker) dropsAt(bit Drop, stage int, kind Kind) (here, earlier, never bool) {
	var home Kind // the kind at which it ends
	switch bit {
	case DropInput:
		home, never = F, stage == 0
	case DropOutput:
		home, never = F, stage != c.stages-1
	case DropGrad:
		home, never = B, stage == c.stages-1 || !c.hasBackward(stage)
	case DropSaved:
		if !kind.Compute() {
			return false, false, true
		}
		home = kind // each action that computes takes what was saved for it
		if kind == F && c.hasBackward(stage) {
			home = B
		}
	case DropSent:
		switch kind {
		case SendF, WaitF:
			home = WaitF
		case SendB, WaitB:
			home = WaitB
		default:
			never = true
		}
	}
	return !never && phase(kind) == phase(home), phase(kind) > phase(home), never
}

// checkHandles compares the drops of inputs, outputs, gradients, saved state and
// sent buffers with what ends at this action.
func (v *dropping) checkHandles(a Action, mb int64) {
	for _, h := range handles {
		here, earlier, never := v.c.dropsAt(h.bit, a.Stage(), a.Kind())
		dropped := a.Drop()&h.bit != 0
		switch {
		case here && !dropped:
			v.fault(a, mb, MissingDrop, h.what, "takes the %s and must drop it; give it drop %v.", h.what, h.bit)
		case !dropped || here:
		case never:
			v.fault(a, mb, MisplacedDrop, h.what, "drops the %s, and there is none to drop here; take drop %v away.", h.what, h.bit)
		case earlier:
			v.fault(a, mb, DoubleDrop, h.what, "drops the %s, which an earlier action has dropped; take drop %v away.", h.what, h.bit)
		default:
			v.fault(a, mb, UseAfterDrop, h.what, "drops the %s, which a later action uses; take drop %v away.", h.what, h.bit)
		}
	}
}

// checkParts follows the parts of the microbatch's entry (L1).
func (v *dropping) checkParts(a Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	reads, dies := v.c.reads(stage, kind), uint64(0)
	if v.c.plan.Parts != nil && a.Drop()&DropParts != 0 {
		dies = v.c.plan.Parts[stage][kind]
	}
	if a.Drop()&DropParts != 0 && dies == 0 {
		v.fault(a, mb, MisplacedDrop, "parts", "drops entry parts, and the table lists none for %d%v; take drop p away.", stage, kind)
	}
	fault := func(code Code, part int, what string) {
		v.fault(a, mb, code, fmt.Sprint("part ", part), "%s part %d of its entry, %s; let the last action that reads it drop it.", verbs[code], part, what)
	}
	for part := 0; (reads|dies)>>part != 0; part++ {
		if reads>>part&1 == 1 && v.has(v.dead+part, mb) {
			fault(UseAfterDrop, part, "which was dropped before")
		}
		if dies>>part&1 == 0 {
			continue
		}
		if reads>>part&1 == 0 {
			fault(MisplacedDrop, part, "which it does not read")
		}
		if !v.add(v.dead+part, mb) {
			fault(DoubleDrop, part, "which was dropped before")
		}
	}
	if dies == 0 {
		return
	}
	for part := 0; v.held>>part != 0; part++ {
		if v.held>>part&1 == 1 && !v.has(v.dead+part, mb) {
			return
		}
	}
	v.remove(v.entry, mb)
}

// verbs are what an action does to a part, by fault.
var verbs = map[Code]string{UseAfterDrop: "reads", MisplacedDrop: "drops", DoubleDrop: "drops"}

// left adds faults for what is still there at the end.
func (v *dropping) left() {
	if len(v.c.on[v.rank]) == 0 {
		return
	}
	all := v.sets[v.set(v.c.on[v.rank][0], F)]
	for part := 0; v.held>>part != 0; part++ {
		if v.held>>part&1 == 0 {
			continue
		}
		for _, r := range all.minus(v.sets[v.dead+part]) {
			v.c.plain(MissingDrop, v.rank, "Rank %d never drops part %d of the entry of %v; let the last action that reads it drop it.", v.rank, part, r)
		}
	}
	for _, r := range all.minus(v.sets[v.retired]) {
		v.c.plain(BadRetire, v.rank, "Rank %d never retires %v; put r on the last action of each microbatch.", v.rank, r)
	}
	v.unwaited()
}

// unwaited adds faults for sends whose buffer nothing ends (L4).
func (v *dropping) unwaited() {
	for _, stage := range v.c.on[v.rank] {
		for _, pair := range [...]struct{ send, wait Kind }{{SendF, WaitF}, {SendB, WaitB}} {
			for _, r := range v.sets[v.set(stage, pair.send)].minus(v.sets[v.set(stage, pair.wait)]) {
				v.c.plain(MissingDrop, v.rank, "Rank %d never waits for %d%v of %v; add a %v with drop t for each.", v.rank, stage, pair.send, r, pair.wait)
			}
		}
	}
}

// bounds compares what was in flight with what the plan declares.
func (v *dropping) bounds() {
	plan := v.c.plan
	for i, p := range v.worst {
		stage := v.c.on[v.rank][i]
		if plan.Windows != nil && p.width > int64(plan.Windows[stage]) {
			v.c.add(Fault{Code: WindowExceeded, Rank: v.rank, Position: p.position, Action: p.action,
				Text: fmt.Sprintf("Rank %d, action %d: %v puts %d consecutive microbatches of stage %d in flight, and its window is %d; declare %d.",
					v.rank, p.position, p.action, p.width, stage, plan.Windows[stage], p.width)})
		}
	}
	if plan.Entries == nil {
		return
	}
	if p := v.worstEntry; max(p.width, 1) > int64(plan.Entries[v.rank]) {
		v.c.add(Fault{Code: EntriesExceeded, Rank: v.rank, Position: p.position, Action: p.action,
			Text: fmt.Sprintf("Rank %d, action %d: %v makes it %d consecutive batch entries, and the rank declares %d; declare %d.",
				v.rank, p.position, p.action, p.width, plan.Entries[v.rank], max(p.width, 1))})
	}
}
