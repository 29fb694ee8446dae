package plantest

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// far runs the copies of one rank of a plan that has its drops. A copy moves the contents of one
// buffer to another one when it runs: at once, or, if late is set, only when an action waits for it.
type far struct {
	p         *schedule.Plan
	late      bool
	near, far map[Cell]string // the contents of the buffers that there are
	lanes     [2][]Cell       // copies out and back that nothing has waited for
	ran       [2]map[Cell]bool
}

// Far returns the fault of the copies of a plan, "" if there is none: a read of other contents than
// F has saved, a buffer that is freed twice or never, or a wait for another copy than the oldest of
// its direction. It runs every copy as early and as late as it can, and shares no code with Check.
func Far(p *schedule.Plan) string {
	for rank, list := range Lists(p) {
		for _, late := range []bool{false, true} {
			f := &far{p: p, late: late, near: map[Cell]string{}, far: map[Cell]string{}, ran: [2]map[Cell]bool{{}, {}}}
			for at, a := range list {
				if fault := f.step(a); fault != "" {
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

func (f *far) step(a schedule.Action) (fault string) {
	c := Cell{a.Stage(), a.Microbatch()}
	drops := func(bit schedule.Drop) bool { return a.Drop()&bit != 0 }
	moves := a.Kind() == schedule.Offload || a.Kind() == schedule.WaitOffload || a.Kind() == schedule.Reload
	if moves && a.Drop()&^(schedule.DropFar|schedule.DropSaved) != 0 {
		return "drops something else"
	}
	switch a.Kind() {
	case schedule.F:
		if !f.p.HasBackward(a.Stage()) {
			return ""
		}
		f.near[c] = fmt.Sprint(c)
	case schedule.Offload:
		if _, there := f.near[c]; !there || f.ran[0][c] || slices.Contains(f.lanes[0], c) {
			return "has nothing to move"
		}
		if _, there := f.far[c]; there {
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
		if _, there := f.near[c]; there {
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
		if _, there := f.far[c]; !there {
			return "has no far copy"
		}
		delete(f.far, c)
	}
	if k := a.Kind(); fault == "" && (k == schedule.B || k == schedule.I || moves && drops(schedule.DropSaved)) {
		if _, there := f.near[c]; !there {
			return "has no near buffer"
		}
		delete(f.near, c)
	}
	return fault
}

// start begins a copy out (0) or back (1).
func (f *far) start(lane int, c Cell) {
	f.lanes[lane] = append(f.lanes[lane], c)
	if !f.late {
		f.copy(lane, c)
	}
}

func (f *far) copy(lane int, c Cell) {
	from, to := f.near, f.far
	if lane == 1 {
		from, to = to, from
	}
	contents, there := from[c]
	if !there {
		contents = garbage
	}
	if _, there := to[c]; there {
		to[c] = contents
	}
}

// wait waits for a copy, which is the oldest of its lane.
func (f *far) wait(lane int, c Cell) string {
	if len(f.lanes[lane]) == 0 || f.lanes[lane][0] != c {
		return fmt.Sprint("waits out of order: ", f.lanes[lane])
	}
	f.lanes[lane] = f.lanes[lane][1:]
	if f.late {
		f.copy(lane, c)
	}
	f.ran[lane][c] = true
	return ""
}
