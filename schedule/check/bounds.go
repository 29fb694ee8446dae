package check

import (
	"strconv"

	"github.com/weir-ml/weir/schedule"
)

// peak holds the maximum width of a set in flight, and the action that first reached it.
type peak struct {
	width int64
	at    location
}

// countCreated adds the buffers that an action creates on the rank to the sets in flight, before the
// action frees any, and updates the peaks.
func (v *dropVisitor) countCreated(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	v.c.createdInputs(stage, kind, func(stage int) {
		own := v.stage(stage)
		v.sets.Add(own.live(), mb)
		v.measure(&own.livePeak, own.live(), a, mb)
	})
	if set, ok := v.sends(stage, kind); ok {
		v.sets.Add(set, mb)
		v.measure(&v.stage(stage).outgoingPeak, set, a, mb)
	}
	if model := v.copyOf(stage); model.held != 0 && v.sets.Add(model.started(), mb) {
		v.sets.Add(model.entry(), mb)
		v.measure(&v.entryPeak, model.entry(), a, mb)
	}
}

// createdInputs calls yield for each stage whose input an action creates on the rank. A forward creates
// the input of the next stage if that stage is on the same rank, and its own input if no other action
// on the rank creates it. A receive creates the input of its stage.
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

// sends returns the set of outgoing microbatches to which a computation adds its microbatch. It
// returns false if the result is not sent.
func (v *dropVisitor) sends(stage int, kind schedule.Kind) (set int, ok bool) {
	c := v.c
	switch {
	case !c.Transfers:
		return 0, false
	case kind == schedule.F:
		return v.stage(stage).outputs(), c.Crosses(stage)
	case kind == schedule.B || kind == schedule.I:
		return v.stage(stage).gradients(), c.Crosses(stage-1) && c.HasBackward(stage-1)
	}
	return 0, false
}

// measure updates a peak with the width of a set.
func (v *dropVisitor) measure(p *peak, set int, a schedule.Action, mb int64) {
	if width := v.sets.Get(set).Width(); width > p.width {
		*p = peak{width, v.here(a, mb)}
	}
}

// finish records that an action is done, and removes its microbatch from the sets in flight. A
// microbatch is in flight on a stage until its last computation there; sends have their own bound.
func (v *dropVisitor) finish(a schedule.Action, mb int64) {
	own, kind := v.stage(a.Stage()), a.Kind()
	switch kind {
	case schedule.WaitF:
		v.sets.Remove(own.outputs(), mb)
	case schedule.WaitB:
		v.sets.Remove(own.gradients(), mb)
	}
	v.sets.Add(own.done(kind), mb)
	for _, other := range own.computations {
		if other != kind && !v.sets.Has(own.done(other), mb) && v.sets.Has(own.planned(other), mb) {
			return
		}
	}
	v.sets.Remove(own.live(), mb)
}

// checkBounds compares the peaks with the bounds that the plan declares.
func (v *dropVisitor) checkBounds() {
	plan := v.c.Plan
	for i, stage := range v.c.On[v.rank] {
		if p := v.stages[i].livePeak; plan.StageWindows != nil && p.width > int64(plan.StageWindows[stage]) {
			v.c.fault(p.at, WindowExceeded, strconv.Itoa(stage), "has %d consecutive microbatches of stage %d in flight, but its window is %d; declare %[1]d.",
				p.width, stage, plan.StageWindows[stage])
		}
		if p := v.stages[i].outgoingPeak; plan.SendWindows != nil && p.width > int64(plan.SendWindows[stage]) {
			v.c.fault(p.at, OutgoingExceeded, strconv.Itoa(stage), "has %d consecutive microbatches of stage %d waiting to be sent or in flight, but the stage declares %d; declare %[1]d.",
				p.width, stage, plan.SendWindows[stage])
		}
	}
	if p := v.entryPeak; plan.EntryWindows != nil && max(p.width, 1) > int64(plan.EntryWindows[v.rank]) {
		v.c.fault(p.at, EntriesExceeded, "", "holds %d consecutive batch entries, but the rank declares %d; declare %d.",
			p.width, plan.EntryWindows[v.rank], max(p.width, 1))
	}
}
