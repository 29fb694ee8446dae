package schedule

import (
	"fmt"
	"slices"
)

// Lifetimes returns a plan with the same actions that says on each of them what
// dies there, given the facts of each stage and the number of parts of a batch
// entry. It fills Facts, Parts, Windows and Entries; drops that the plan had are
// forgotten, and the plan itself is left alone.
//
// On every rank: a part of an entry dies at the last action that reads it (L1); a
// stage's input at its F; the output of the last stage at its F, since nothing
// reads it; the gradient of a stage's output at its B or I, also where W follows;
// saved state at each B, I or W that takes it, and at F where the stage has no
// backward; a sent buffer at the wait for it. A microbatch retires at its last
// action.
//
// A segment is split where its first or last repeats drop something else than the
// others, so that one body has one set of drops. As with Check the cost depends on
// the size of the plan as segments.
//
// The plan must be valid: the error is that of Check where it is not. Other errors
// wrap ErrFacts.
func Lifetimes(plan *Plan, facts []Facts, parts int) (*Plan, error) {
	if err := checkFacts(facts, plan.Placement.Stages(), parts); err != nil {
		return nil, err
	}
	marked := withoutDrops(plan)
	marked.Facts = slices.Clone(facts)
	if err := Check(marked); err != nil {
		return nil, err
	}

	o := newOutline(marked)
	marked.Parts = make([][NumKinds]uint64, o.stages)
	marked.Windows = make([]int, o.stages)
	marked.Entries = make([]int, marked.Placement.Ranks)
	for rank, program := range marked.Programs {
		v := newMarking(&o, rank)
		v.program(program, true, v)
		if c := (&checker{name: plan.Name}); c.unproved(&v.walk, rank) {
			return nil, c.err()
		}
		if v.fault == nil {
			v.fault = v.unread()
		}
		if v.fault != nil {
			return nil, v.fault
		}
		marked.Programs[rank] = v.segments()
		marked.Entries[rank] = int(max(v.entries, 1))
	}
	return marked, nil
}

// withoutDrops returns a copy of the plan as it is before the lifetime pass.
func withoutDrops(plan *Plan) *Plan {
	bare := *plan
	bare.Facts, bare.Parts, bare.Windows, bare.Entries = nil, nil, nil, nil
	bare.Programs = make([][]Segment, len(plan.Programs))
	for rank, program := range plan.Programs {
		bare.Programs[rank] = slices.Clone(program)
		for i := range program {
			body := slices.Clone(program[i].Body)
			for k, a := range body {
				body[k] = a.WithDrop(0)
			}
			bare.Programs[rank][i].Body = body
		}
	}
	return &bare
}

// marking is the visitor that goes through a rank's program from its end. So
// what it sees for the first time is there for the last time, and what is born at
// an action has been in flight until then.
type marking struct {
	walk
	*outline
	rank  int
	lower int // the lowest stage on the rank: its birth is the first action of a microbatch here

	// Indices of sets.
	seen    int // microbatches that have had their last action on the rank
	entry   int // microbatches whose entry has a part left
	dead    int // by part: microbatches that have had its last read
	touched int // by the rank's stages: microbatches that have had the stage's last action
	live    int // by the rank's stages: microbatches of which something is in flight

	entries int64
	drops   []Drop // of the repeat that is walked, in the order of the body
	groups  []group
	fault   error
}

// group is repeats of one segment that follow each other and drop the same.
type group struct {
	segment, repeats int
	drops            []Drop
}

func newMarking(o *outline, rank int) *marking {
	v := &marking{outline: o, rank: rank, seen: 0, entry: 1, dead: 2, touched: 2 + MaxParts}
	v.live = v.touched + len(o.on[rank])
	v.walk = newWalk(v.live + len(o.on[rank]))
	if len(o.on[rank]) > 0 {
		v.lower = o.on[rank][0]
	}
	return v
}

func (v *marking) visit(a Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	drop := v.ofHandles(stage, kind)
	if v.lastReads(stage, kind, mb) {
		drop |= DropParts
	}
	if v.add(v.seen, mb) {
		drop |= Retire
	}
	i := v.place[stage]
	if v.add(v.touched+i, mb) {
		v.add(v.live+i, mb)
		if !v.trial {
			v.plan.Windows[stage] = max(v.plan.Windows[stage], int(v.sets[v.live+i].width()))
		}
	}
	v.born(stage, kind, func(stage int) {
		v.remove(v.live+v.place[stage], mb)
		if stage == v.lower {
			v.remove(v.entry, mb)
		}
	})
	if !v.trial {
		v.drops = append(v.drops, drop)
	}
}

// ofHandles returns the drops that follow from stage and kind alone.
func (v *marking) ofHandles(stage int, kind Kind) Drop {
	var drop Drop
	switch kind {
	case F:
		if stage > 0 {
			drop |= DropInput
		}
		if stage == v.stages-1 {
			drop |= DropOutput
		}
		if !v.hasBackward(stage) {
			drop |= DropSaved
		}
	case B, I:
		drop = DropSaved
		if stage < v.stages-1 {
			drop |= DropGrad
		}
	case W:
		drop = DropSaved
	case WaitF, WaitB:
		drop = DropSent
	}
	return drop
}

// lastReads enters into the table which parts the action is the last to read,
// and reports whether there are any.
func (v *marking) lastReads(stage int, kind Kind, mb int64) bool {
	reads, dies := v.reads(stage, kind), uint64(0)
	for part := 0; reads>>part != 0; part++ {
		if reads>>part&1 == 1 && v.add(v.dead+part, mb) {
			dies |= 1 << part
		}
	}
	if dies == 0 {
		return false
	}
	v.add(v.entry, mb)
	if v.trial {
		return true
	}
	v.entries = max(v.entries, v.sets[v.entry].width())
	table := &v.plan.Parts[stage][kind]
	if *table != 0 && *table != dies && v.fault == nil {
		v.fault = fmt.Errorf("%w: different entry parts die at %d%v for different microbatches (sets %#x and %#x), which a plan cannot say: let the order of its actions be the same for all",
			ErrFacts, stage, kind, *table, dies)
	}
	*table = dies
	return true
}

// unread returns an error where a part is read for some microbatches only, so
// that nothing would end it for the others.
func (v *marking) unread() error {
	all := runs{{0, v.microbatches}}
	for part := range MaxParts {
		read := v.sets[v.dead+part]
		for _, r := range all.minus(read) {
			if len(read) > 0 {
				return fmt.Errorf("%w: part %d of an entry is read on rank %d, but not for %v: declare it at a kind that every microbatch has", ErrFacts, part, v.rank, r)
			}
		}
	}
	return nil
}

// repeats takes the drops of n repeats, of which the first was walked.
func (v *marking) repeats(n int64) {
	if k := len(v.groups) - 1; k >= 0 && v.groups[k].segment == v.segment && (len(v.drops) == 0 || slices.Equal(v.groups[k].drops, v.drops)) {
		v.groups[k].repeats += int(n)
	} else {
		v.groups = append(v.groups, group{v.segment, int(n), slices.Clone(v.drops)})
	}
	v.drops = v.drops[:0]
}

// segments returns the program with its drops.
func (v *marking) segments() []Segment {
	program := make([]Segment, 0, len(v.groups))
	segment, from := -1, 0 // the repeat from which the group is
	for _, g := range slices.Backward(v.groups) {
		if g.segment != segment {
			segment, from = g.segment, 0
		}
		s := v.plan.Programs[v.rank][g.segment]
		body := make([]Action, len(s.Body))
		for i, a := range s.Body {
			body[i] = a.Shift(from * s.Stride).WithDrop(g.drops[len(body)-1-i])
		}
		program = append(program, Segment{Body: body, Repeat: g.repeats, Stride: s.Stride})
		from += g.repeats
	}
	return program
}
