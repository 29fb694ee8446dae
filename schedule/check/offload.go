package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// checkOffloads proves, rank by rank, that saved state is copied to far memory at most once, that
// its near buffers exist until that copy is complete, that it is back before an action takes it,
// and that the rank waits for copies in one direction in the order in which they start. If the plan
// has drops, checkOffloads also proves that WAIT_OFFLOAD drops the near buffers and that only the
// action that takes the state drops the far copy.
func (c *Checker) checkOffloads() {
	if !c.Offloads {
		return
	}
	faults := len(c.Faults)
	for rank := range c.Plan.Programs {
		v := &offloadVisitor{c.walk(setsOfOffload * len(c.On[rank]))}
		if v.run(rank, v.visit) && len(c.Faults) == faults {
			c.checkCopyOrder(rank)
		}
	}
}

// offloadVisitor is the visitor that tracks the saved state that a rank moves to far memory and back.
type offloadVisitor struct{ rankWalk }

// The sets for each stage of the rank. The first three hold the microbatches whose state has been
// saved, offloaded and taken. The others hold the microbatches whose state is being copied out,
// is in far memory, and has been or is being reloaded.
const (
	stateSaved = iota
	stateMoved
	stateTaken
	stateLeaving
	stateAway
	stateBack
	setsOfOffload = iota
)

func (v *offloadVisitor) visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if !c.allows(stage, kind) || kind.OfStage() {
		return
	}
	first := setsOfOffload * c.Place[stage]
	act := func(kind schedule.Kind) schedule.Action { return schedule.NewAction(kind, stage, 0).Shift(int(mb)) }
	far, due := a.Drop()&schedule.DropFar, schedule.Drop(0)
	switch kind {
	case schedule.F:
		v.sets.Add(first+stateSaved, mb)
	case schedule.Offload:
		switch {
		case !v.sets.Add(first+stateMoved, mb):
			v.fault(a, mb, Twice, "", "moves saved state that was moved before; remove one of the two.")
			return
		case v.sets.Has(first+stateTaken, mb):
			v.fault(a, mb, Order, "taken", "moves saved state that was already taken; move it before the action that takes it, or remove it.")
		case !v.sets.Has(first+stateSaved, mb):
			v.fault(a, mb, Order, "saved", "runs before %v, which saves what it moves; move %[1]v before it.", act(schedule.F))
		}
		v.sets.Add(first+stateLeaving, mb)
	case schedule.WaitOffload:
		if !v.sets.Remove(first+stateLeaving, mb) {
			v.fault(a, mb, Order, "out", "waits for a copy that has not started; put %v before it.", act(schedule.Offload))
			if !v.sets.Add(first+stateMoved, mb) {
				return
			}
		}
		v.sets.Add(first+stateAway, mb)
		due = schedule.DropSaved
	case schedule.Reload:
		switch {
		case v.sets.Remove(first+stateLeaving, mb):
			v.fault(a, mb, Order, "leaving", "reloads before %v, but the copy to far memory may not be complete; move %[1]v before it.", act(schedule.WaitOffload))
		case !v.sets.Remove(first+stateAway, mb):
			v.fault(a, mb, Order, "away", "reloads saved state that is not in far memory; put %v and its %v before it.", act(schedule.Offload), schedule.WaitOffload)
			if !v.sets.Add(first+stateMoved, mb) {
				return
			}
		}
		v.sets.Add(first+stateBack, mb)
	case schedule.B, schedule.I:
		switch {
		case v.sets.Remove(first+stateLeaving, mb):
			v.fault(a, mb, Order, "leaving", "takes saved state that is being copied to far memory; put %v and %v before it.", act(schedule.WaitOffload), act(schedule.Reload))
			due |= far
		case v.sets.Remove(first+stateAway, mb):
			v.fault(a, mb, UseAfterDrop, "away", "takes saved state that is in far memory; put %v before it.", act(schedule.Reload))
			due |= far
		case v.sets.Remove(first+stateBack, mb):
			due |= schedule.DropFar
		}
		v.sets.Add(first+stateTaken, mb)
	}
	if c.Marked {
		v.checkDrops(a, mb, due)
	}
}

// checkDrops compares the drops of an action with the drops that are due. For an action that does not
// move saved state, it checks only the drop of the far copy.
func (v *offloadVisitor) checkDrops(a schedule.Action, mb int64, due schedule.Drop) {
	has := a.Drop()
	if a.Kind() <= schedule.WaitB {
		has &= schedule.DropFar
	}
	switch {
	case due&^has == schedule.DropSaved:
		v.fault(a, mb, MissingDrop, "near", "completes a copy to far memory and must drop the near buffers; give it drop %v.", due)
	case due&^has != 0:
		v.fault(a, mb, MissingDrop, "far", "takes saved state that was in far memory and must drop the copy there; give it drop %v.", due)
	case has&^due&schedule.DropFar != 0:
		v.fault(a, mb, MisplacedDrop, "far", "drops a far copy, but none ends here; remove drop %v.", schedule.DropFar)
	case has&^due != 0:
		v.fault(a, mb, MisplacedDrop, "moves", "drops %v, which does not end here; remove drop %[1]v.", has&^due)
	}
}

// checkCopyOrder proves that a rank waits for copies in the order in which they start. Only the drops
// of a plan show which actions wait for reloads.
func (c *Checker) checkCopyOrder(rank int) {
	cursor := func(keep func(a schedule.Action) bool) passes.Cursor {
		return passes.NewCursor(filter(c.Plan.Programs[rank], keep), 0)
	}
	prove := func(start schedule.Kind, waits func(a schedule.Action) bool) {
		starts := func(a schedule.Action) bool { return a.Kind() == start }
		c.pair(cursor(starts), cursor(waits), func(a schedule.Action) schedule.Action {
			return schedule.NewAction(start, a.Stage(), a.Microbatch())
		}, func(want, got, wants schedule.Action) {
			c.fault(findAction(c.Plan, rank, want), Pairing, "", "waits for the copy of %v, but %v started earlier; wait for copies in the order in which they start.", wants, got)
		})
	}
	prove(schedule.Offload, func(a schedule.Action) bool { return a.Kind() == schedule.WaitOffload })
	if c.Marked {
		prove(schedule.Reload, func(a schedule.Action) bool { return a.Drop()&schedule.DropFar != 0 })
	}
}

// filter returns the program reduced to the actions that keep accepts, without drops and joins.
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
