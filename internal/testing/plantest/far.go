package plantest

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// farCopies runs the copies of one rank of a plan with drops. A copy copies the contents of one buffer to
// another immediately, or, if late is set, when an action waits for it.
type farCopies struct {
	p         *schedule.Plan
	late      bool
	near, far map[Cell]string // the contents of allocated buffers
	lanes     [2][]Cell       // copies out and back, without those that an action has waited for
	completed [2]map[Cell]bool
}

// OffloadFault returns the first fault of the copies of a plan, or "": a read of contents that differ from those
// saved by F, a buffer that is freed twice or never, or a wait for a copy that is not the oldest of its
// direction. It runs every copy as early as possible and as late as possible, and shares no code with
// package check.
func OffloadFault(p *schedule.Plan) string {
	for rank, list := range Lists(p) {
		for _, late := range []bool{false, true} {
			f := &farCopies{p: p, late: late, near: map[Cell]string{}, far: map[Cell]string{}, completed: [2]map[Cell]bool{{}, {}}}
			for at, a := range list {
				if fault := f.run(a); fault != "" {
					return fmt.Sprintf("rank %d, action %d: %v~%v %s", rank, at, Bare(a), a.Drop(), fault)
				}
			}
			if len(f.near)+len(f.far)+len(f.lanes[0])+len(f.lanes[1]) > 0 {
				return fmt.Sprint("left at the end: ", f.near, f.far, f.lanes)
			}
		}
	}
	return ""
}

const garbage = "garbage"

func (f *farCopies) run(a schedule.Action) (fault string) {
	c := Cell{a.Stage(), a.Microbatch()}
	drops := func(bit schedule.Drop) bool { return a.Drop()&bit != 0 }
	moves := a.Kind() == schedule.Offload || a.Kind() == schedule.WaitOffload || a.Kind() == schedule.Reload
	if moves && a.Drop()&^(schedule.DropFar|schedule.DropSaved) != 0 {
		return "has an invalid drop"
	}
	switch a.Kind() {
	case schedule.F:
		if !f.p.HasBackward(a.Stage()) {
			return ""
		}
		f.near[c] = fmt.Sprint(c)
	case schedule.Offload:
		if _, ok := f.near[c]; !ok || f.completed[0][c] || slices.Contains(f.lanes[0], c) {
			return "has no buffer to move"
		}
		if _, ok := f.far[c]; ok {
			return "has moved it before"
		}
		f.far[c] = garbage
		f.start(0, c)
	case schedule.WaitOffload:
		fault = f.wait(0, c)
		if fault == "" && !drops(schedule.DropSaved) {
			return "keeps the near buffer"
		}
	case schedule.Reload:
		if _, ok := f.near[c]; ok {
			return "has a near buffer already"
		}
		f.near[c] = garbage
		f.start(1, c)
	case schedule.B, schedule.I:
		if drops(schedule.DropFar) {
			fault = f.wait(1, c)
		}
		if fault == "" && f.near[c] != fmt.Sprint(c) {
			fault = "reads " + f.near[c]
		}
	}
	if fault == "" && drops(schedule.DropFar) {
		if _, ok := f.far[c]; !ok {
			return "has no far copy"
		}
		delete(f.far, c)
	}
	if k := a.Kind(); fault == "" && (k == schedule.B || k == schedule.I || moves && drops(schedule.DropSaved)) {
		if _, ok := f.near[c]; !ok {
			return "has no near buffer"
		}
		delete(f.near, c)
	}
	return fault
}

// start starts a copy out (lane 0) or back (lane 1).
func (f *farCopies) start(lane int, c Cell) {
	f.lanes[lane] = append(f.lanes[lane], c)
	if !f.late {
		f.copy(lane, c)
	}
}

func (f *farCopies) copy(lane int, c Cell) {
	from, to := f.near, f.far
	if lane == 1 {
		from, to = to, from
	}
	contents, ok := from[c]
	if !ok {
		contents = garbage
	}
	if _, ok := to[c]; ok {
		to[c] = contents
	}
}

// wait waits for a copy, which must be the oldest of its lane.
func (f *farCopies) wait(lane int, c Cell) string {
	if len(f.lanes[lane]) == 0 || f.lanes[lane][0] != c {
		return fmt.Sprint("waits out of order: ", f.lanes[lane])
	}
	f.lanes[lane] = f.lanes[lane][1:]
	if f.late {
		f.copy(lane, c)
	}
	f.completed[lane][c] = true
	return ""
}
