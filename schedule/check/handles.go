package check

import (
	"github.com/weir-ml/weir/schedule"
)

// handle describes a resource that a stage holds for a microbatch, with the drop bit that releases it.
type handle struct {
	bit  schedule.Drop
	what string
}

var handles = []handle{
	{schedule.DropInput, "input"}, {schedule.DropOutput, "output"}, {schedule.DropGrad, "output's gradient"}, {schedule.DropSaved, "saved state"}, {schedule.DropSent, "sent buffer"},
}

const handleBits = schedule.DropInput | schedule.DropOutput | schedule.DropGrad | schedule.DropSaved | schedule.DropSent

// dropsAt reports whether an action of the kind must release the handle of a drop bit (due), whether an
// earlier action must already have released it (earlier), and whether there is no such handle (absent).
func (c *Checker) dropsAt(bit schedule.Drop, stage int, kind schedule.Kind) (due, earlier, absent bool) {
	var last schedule.Kind // the kind that releases the handle
	switch bit {
	case schedule.DropInput:
		last, absent = schedule.F, c.IsFirst(stage)
	case schedule.DropOutput:
		last, absent = schedule.F, !c.IsLast(stage)
	case schedule.DropGrad:
		last, absent = schedule.B, c.IsLast(stage) || !c.HasBackward(stage)
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
			absent = true
		}
	}
	return !absent && kind.Phase() == last.Phase(), kind.Phase() > last.Phase(), absent
}

// checkHandles compares an action's drops of inputs, outputs, gradients, saved state and sent buffers
// with the handles that it must release.
func (v *dropVisitor) checkHandles(a schedule.Action, mb int64) {
	for _, h := range handles {
		due, earlier, absent := v.c.dropsAt(h.bit, a.Stage(), a.Kind())
		dropped := a.Drop()&h.bit != 0
		switch {
		case due && !dropped:
			v.fault(a, mb, MissingDrop, h.what, "takes the %s and must drop it; give it drop %v.", h.what, h.bit)
		case !dropped || due:
		case absent:
			v.fault(a, mb, MisplacedDrop, h.what, "drops the %s, but there is none to drop here; remove drop %v.", h.what, h.bit)
		case earlier:
			v.fault(a, mb, DoubleDrop, h.what, "drops the %s, which an earlier action has dropped; remove drop %v.", h.what, h.bit)
		default:
			v.fault(a, mb, UseAfterDrop, h.what, "drops the %s, which a later action uses; remove drop %v.", h.what, h.bit)
		}
	}
}
