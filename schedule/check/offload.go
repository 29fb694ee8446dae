package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// offloading proves, rank by rank, that saved state is copied to far memory once at most, that its
// near buffers are there until that copy is complete, that it is back before the action that takes
// it, and that copies in one direction are waited for in the order in which they start. If the plan
// has drops, it also proves that WAIT_OFFLOAD drops the near buffers and that the action that takes
// the state, and no other, drops the far copy.
func (c *Checker) offloading() {
	if !c.Offloads {
		return
	}
	faults := len(c.Faults)
	for rank, program := range c.Plan.Programs {
		v := &offloaded{c: c, rank: rank, Walk: passes.NewWalk(&c.Outline, setsOfOffload*len(c.On[rank]))}
		v.Program(program, false, v)
		if c.Unproved(&v.Walk, rank) {
			continue
		}
		c.looked(&v.Walk)
		if len(c.Faults) == faults {
			c.lanes(rank)
		}
	}
}

// offloaded is the visitor that follows saved state to far memory and back.
type offloaded struct {
	passes.Walk
	c    *Checker
	rank int
}

// The sets of each of the rank's stages: the microbatches whose state is saved, has been offloaded,
// has been taken, and is now on its way out, away, or on its way back.
const (
	stateSaved = iota
	stateMoved
	stateTaken
	stateLeaving
	stateAway
	stateBack
	setsOfOffload = iota
)

func (v *offloaded) Repeats(*schedule.Segment, int64) {}

func (v *offloaded) Visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if !c.allows(stage, kind) || kind.OfStage() {
		return
	}
	sets := setsOfOffload * c.Place[stage]
	act := func(kind schedule.Kind) schedule.Action { return schedule.Act(kind, stage, 0).Shift(int(mb)) }
	far, due := a.Drop()&schedule.DropFar, schedule.Drop(0)
	switch kind {
	case schedule.F:
		v.Add(sets+stateSaved, mb)
	case schedule.Offload:
		switch {
		case !v.Add(sets+stateMoved, mb):
			v.fault(a, mb, Twice, "", "moves saved state that was moved before; take one of the two out.")
			return
		case v.Has(sets+stateTaken, mb):
			v.fault(a, mb, Order, "taken", "moves saved state that is taken already; move it before the action that takes it, or take it out.")
		case !v.Has(sets+stateSaved, mb):
			v.fault(a, mb, Order, "saved", "runs before %v, which saves what it moves; move %[1]v before it.", act(schedule.F))
		}
		v.Add(sets+stateLeaving, mb)
	case schedule.WaitOffload:
		if !v.Remove(sets+stateLeaving, mb) {
			v.fault(a, mb, Order, "out", "waits for no copy; put one %v before it.", act(schedule.Offload))
			if !v.Add(sets+stateMoved, mb) {
				return
			}
		}
		v.Add(sets+stateAway, mb)
		due = schedule.DropSaved
	case schedule.Reload:
		switch {
		case v.Remove(sets+stateLeaving, mb):
			v.fault(a, mb, Order, "leaving", "copies back before %v, and the copy out may not be complete; move %[1]v before it.", act(schedule.WaitOffload))
		case !v.Remove(sets+stateAway, mb):
			v.fault(a, mb, Order, "away", "brings back saved state that is not away; put one %v and its %v before it.", act(schedule.Offload), schedule.WaitOffload)
			if !v.Add(sets+stateMoved, mb) {
				return
			}
		}
		v.Add(sets+stateBack, mb)
	case schedule.B, schedule.I:
		switch {
		case v.Remove(sets+stateLeaving, mb):
			v.fault(a, mb, Order, "leaving", "takes saved state that is copied to far memory; put %v and %v before it.", act(schedule.WaitOffload), act(schedule.Reload))
			due |= far
		case v.Remove(sets+stateAway, mb):
			v.fault(a, mb, UseAfterDrop, "away", "takes saved state that is in far memory; put %v before it.", act(schedule.Reload))
			due |= far
		case v.Remove(sets+stateBack, mb):
			due |= schedule.DropFar
		}
		v.Add(sets+stateTaken, mb)
	}
	if c.Marked {
		v.drops(a, mb, due)
	}
}

// drops compares the drops of far copies, and all drops of an action that moves saved state, with
// those that are due.
func (v *offloaded) drops(a schedule.Action, mb int64, due schedule.Drop) {
	has := a.Drop()
	if a.Kind() <= schedule.WaitB {
		has &= schedule.DropFar
	}
	switch {
	case due&^has == schedule.DropSaved:
		v.fault(a, mb, MissingDrop, "near", "ends the near buffers of saved state that is away and must drop them; give it drop %v.", due)
	case due&^has != 0:
		v.fault(a, mb, MissingDrop, "far", "takes saved state that was in far memory and must drop the copy there; give it drop %v.", due)
	case has&^due&schedule.DropFar != 0:
		v.fault(a, mb, MisplacedDrop, "far", "drops a copy in far memory, and there is none that ends here; take drop %v away.", schedule.DropFar)
	case has&^due != 0:
		v.fault(a, mb, MisplacedDrop, "moves", "drops %v, which does not end here; take drop %[1]v away.", has&^due)
	}
}

func (v *offloaded) fault(a schedule.Action, mb int64, code Code, about, format string, args ...any) {
	v.c.at(&v.Walk, v.rank, a, mb, code, about, format, args...)
}

// lanes proves that the copies of a rank are waited for in the order in which they start. The
// actions that wait for copies back are known in a plan with drops.
func (c *Checker) lanes(rank int) {
	cursor := func(keep func(a schedule.Action) bool) passes.Cursor {
		return passes.NewCursor(filter(c.Plan.Programs[rank], keep), 0)
	}
	prove := func(start schedule.Kind, waits func(a schedule.Action) bool) {
		starts := func(a schedule.Action) bool { return a.Kind() == start }
		c.pair(cursor(starts), cursor(waits), func(a schedule.Action) schedule.Action {
			return schedule.Act(start, a.Stage(), a.Microbatch())
		}, func(want, got, wants schedule.Action) {
			c.fault(findAction(c.Plan, rank, want), Pairing, "", "waits for the copy of %v, and %v started before it; wait for copies in the order in which they start.", wants, got)
		})
	}
	prove(schedule.Offload, func(a schedule.Action) bool { return a.Kind() == schedule.WaitOffload })
	if c.Marked {
		prove(schedule.Reload, func(a schedule.Action) bool { return a.Drop()&schedule.DropFar != 0 })
	}
}

// filter returns the program with only the actions that keep accepts.
func filter(program []schedule.Segment, keep func(a schedule.Action) bool) (list []schedule.Segment) {
	for _, s := range program {
		kept := schedule.Segment{Inner: filter(s.Inner, keep), Repeat: s.Repeat, Stride: s.Stride}
		for _, a := range s.Body {
			if keep(a) {
				kept.Body = append(kept.Body, a.WithDrop(0).WithJoin(false))
			}
		}
		if len(kept.Body)+len(kept.Inner) > 0 {
			list = append(list, kept)
		}
	}
	return list
}
