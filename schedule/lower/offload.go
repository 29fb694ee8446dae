package lower

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// Offload returns a plan that moves saved state to far memory between the forward that saves it and
// the B or I that takes it. away[stage] is the set of the stage's slots to move, as in
// [schedule.Plan]. For each microbatch of a stage with slots to move:
//
//   - OFFLOAD comes after the forward, and after the sends that follow it;
//   - WAIT_OFFLOAD comes after the next overlap computations, so that the copy overlaps with them;
//     an overlap of 0 means 1;
//   - RELOAD comes overlap computations before the B or I, and before the receives of these
//     computations.
//
// A joined pair counts as one computation. At least one computation runs between WAIT_OFFLOAD and
// RELOAD; the state of a microbatch without such a computation stays near, as on the last stage of
// 1F1B. In the result, OffloadSlots is 0 for a stage whose microbatches all stay near, and nil if this
// holds for all stages.
//
// Run Offload after Transfers. If the plan already offloads or is for PyTorch, if overlap is not from 0
// to 64, or if the length of away is not the number of stages, the error wraps ErrParams. If the plan is
// invalid, Offload returns the error of [check.Plan]. The result has no drops. The cost depends on the
// size of the plan's segments, as for [check.Plan].
func Offload(plan *schedule.Plan, away []uint64, overlap int) (*schedule.Plan, error) {
	if err := check.Plan(withoutDrops(plan)); err != nil {
		return nil, err
	}
	return offload(plan, away, overlap)
}

// WithoutOffload returns the plan without its copies to far memory and back, for a system or a file format that
// does not support them. The result has no drops.
func WithoutOffload(plan *schedule.Plan) *schedule.Plan {
	near := rewritten(plan, func(body []schedule.Action) []schedule.Action {
		return slices.DeleteFunc(body, func(a schedule.Action) bool { return a.Kind() >= schedule.Offload && a.Kind() <= schedule.Reload })
	})
	near.OffloadSlots = nil
	return near
}

// offload adds offloads to a valid plan.
func offload(plan *schedule.Plan, away []uint64, overlap int) (*schedule.Plan, error) {
	if len(away) != plan.Placement.Stages() {
		return nil, diagnostic.Errorf(schedule.ErrParams, "there are offload slots for %d stages, but the plan has %d stages: give one set for each stage", len(away), plan.Placement.Stages())
	}
	if overlap < 0 || overlap > maxOverlap {
		return nil, diagnostic.Errorf(schedule.ErrParams, "a copy cannot overlap with %d computations: use 1 to %d, or 0 for 1", overlap, maxOverlap)
	}
	if plan.Runtime.Posts() {
		return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q is for PyTorch, which cannot offload: give it to ForRuntime with schedule.Weir first", plan.Name)
	}
	if plan.OffloadSlots != nil {
		return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q already offloads: use the plan without offloads", plan.Name)
	}
	offloaded := withoutDrops(plan).Flat()
	p := offloading{away: make([]bool, len(away)), moved: make([]bool, len(away)), overlap: max(overlap, 1)}
	p.near = 2*p.overlap + 1
	for stage := range away {
		p.away[stage] = away[stage] != 0 && plan.HasBackward(stage)
	}
	for rank, program := range offloaded.Programs {
		p.written = false
		if list := p.program(program); p.written {
			offloaded.Programs[rank] = list
		}
	}
	if slices.Contains(p.moved, true) {
		offloaded.OffloadSlots = slices.Clone(away)
		for stage, moved := range p.moved {
			if !moved {
				offloaded.OffloadSlots[stage] = 0
			}
		}
	}
	return offloaded, nil
}

// offloading inserts offloads into programs.
type offloading struct {
	away  []bool // by stage: the plan offloads its saved state
	moved []bool // by stage: the saved state of some microbatch is moved
	// overlap is the parameter of Offload, at least 1. If the B or I of a microbatch comes at most near
	// computations after its F, the saved state is not moved. No decision depends on a computation farther
	// away than near.
	overlap, near int
	out           schedule.Builder
	written       bool // the rank's program has an offload
}

// saves reports whether the action saves the state of its stage and microbatch. takes reports
// whether the action is the first to take that state.
func saves(a schedule.Action) bool { return a.Kind() == schedule.F }
func takes(a schedule.Action) bool { return a.Kind() == schedule.B || a.Kind() == schedule.I }

// maxOverlap is the maximum number of computations with which a copy overlaps.
const maxOverlap = 64

// unit is a computation or a joined pair, with the other actions up to the next computation. The
// first unit of a program may lack a computation.
type unit struct {
	run   []schedule.Action
	rest  []schedule.Action
	loops []schedule.Segment // after rest: segments without computations, and the actions between them
}

// unitLoop is a repeated sequence of units.
type unitLoop struct {
	units          []unit
	repeat, stride int
}

// program returns the program with its offloads. It writes out the first and last repeats of each
// segment that has computations. All other repeats have the same neighbors, as far as any decision
// depends on them, so the same actions are inserted into each of them.
func (p *offloading) program(program []schedule.Segment) []schedule.Segment {
	parts := []unitLoop{{units: make([]unit, 1), repeat: 1}}
	list := &parts[0] // the part that takes the units that are written out
	for _, s := range program {
		computations, several := count(s.Body), 1
		if computations == 0 && s.Repeat > 1 {
			last := &list.units[len(list.units)-1]
			last.loops = append(last.loops, s)
			continue
		}
		whole := s // each repeat of whole combines several repeats of a short body
		if computations > 0 {
			several = (p.near + computations) / computations
			whole.Repeat, whole.Stride, whole.Body = s.Repeat/several, s.Stride*several, nil
			for i := range several {
				whole.Body = append(whole.Body, shifted(s.Body, i*s.Stride)...)
			}
		}
		if whole.Repeat < 4 {
			for i := range s.Repeat {
				list.add(shifted(s.Body, i*s.Stride))
			}
			continue
		}
		lead := slices.IndexFunc(whole.Body, func(a schedule.Action) bool { return a.Kind().Compute() })
		list.add(whole.Body)
		list.add(shifted(whole.Body[:lead], whole.Stride))
		middle := unitLoop{repeat: whole.Repeat - 2, stride: whole.Stride}
		middle.add(shifted(whole.Body[lead:], whole.Stride))
		middle.add(shifted(whole.Body[:lead], 2*whole.Stride))
		after := unitLoop{repeat: 1}
		after.add(shifted(whole.Body[lead:], (whole.Repeat-1)*whole.Stride))
		for i := whole.Repeat * several; i < s.Repeat; i++ {
			after.add(shifted(s.Body, i*s.Stride))
		}
		parts = append(parts, middle, after)
		list = &parts[len(parts)-1]
	}
	for i := range parts {
		p.write(parts, i)
	}
	return p.out.Program()
}

// count returns the number of computations, counting a joined pair as one.
func count(body []schedule.Action) (n int) {
	for i, a := range body {
		if a.Kind().Compute() && (i == 0 || !body[i-1].Joined()) {
			n++
		}
	}
	return n
}

// add appends actions to the units of the part.
func (l *unitLoop) add(actions []schedule.Action) {
	for _, a := range actions {
		last := len(l.units) - 1
		switch {
		case a.Kind().Compute() && last >= 0 && len(l.units[last].run) > 0 && l.units[last].run[len(l.units[last].run)-1].Joined():
			l.units[last].run = append(l.units[last].run, a)
		case a.Kind().Compute():
			l.units = append(l.units, unit{run: []schedule.Action{a}})
		case l.units[last].loops != nil:
			l.units[last].loops = append(l.units[last].loops, schedule.Segment{Body: []schedule.Action{a}, Repeat: 1})
		default:
			l.units[last].rest = append(l.units[last].rest, a)
		}
	}
}

// runs appends the computations of the units with indices in [from, to) to the list, with shift added
// to their microbatches.
func (l *unitLoop) runs(list [][]schedule.Action, from, to, shift int) [][]schedule.Action {
	for i := max(from, 0); i < min(to, len(l.units)); i++ {
		list = append(list, shifted(l.units[i].run, shift))
	}
	return list
}

// write writes a part. The offloads in the part also depend on the last units before the part and on
// the first units after it.
func (p *offloading) write(parts []unitLoop, at int) {
	l := &parts[at]
	n := len(l.units)
	var runs [][]schedule.Action
	switch {
	case l.repeat > 1:
		runs = l.runs(nil, n-p.overlap, n, -l.stride)
	case at > 0:
		before := &parts[at-1]
		runs = before.runs(nil, len(before.units)-p.overlap, len(before.units), (before.repeat-1)*before.stride)
	}
	first := len(runs)
	runs = l.runs(runs, 0, n, 0)
	switch {
	case l.repeat > 1:
		runs = l.runs(runs, 0, p.near, l.stride)
	case at+1 < len(parts):
		runs = parts[at+1].runs(runs, 0, p.near, 0)
	}
	start := p.out.Len()
	for i := range l.units {
		u := &l.units[i]
		for _, a := range u.run {
			p.out.Append(a)
		}
		sent := 0
		for k, a := range u.rest {
			if a.Kind() == schedule.SendF || a.Kind() == schedule.SendB {
				sent = k + 1
			}
		}
		for _, a := range u.rest[:sent] {
			p.out.Append(a)
		}
		p.insert(runs, first+i)
		for _, a := range u.rest[sent:] {
			p.out.Append(a)
		}
		for _, s := range u.loops {
			p.out.Segment(s)
		}
	}
	p.out.Repeat(start, l.repeat-1, l.stride)
}

// insert writes the copies to and from far memory that come after the computation runs[at].
func (p *offloading) insert(runs [][]schedule.Action, at int) {
	write := func(kind schedule.Kind, i int, matches func(a schedule.Action) bool) {
		if i < 0 || i >= len(runs) {
			return
		}
		for _, a := range runs[i] {
			if p.away[a.Stage()] && matches(a) && !hasCounterpart(runs[max(i-p.near, 0):min(i+p.near+1, len(runs))], a) {
				p.moved[a.Stage()], p.written = true, true
				p.out.Append(schedule.NewAction(kind, a.Stage(), a.Microbatch()))
			}
		}
	}
	write(schedule.Offload, at, saves)
	write(schedule.WaitOffload, at-p.overlap, saves)
	write(schedule.Reload, at+p.overlap+1, takes)
}

// hasCounterpart reports whether the computations include the B or I that takes the state saved by
// the action, or the F that saves the state taken by the action.
func hasCounterpart(runs [][]schedule.Action, a schedule.Action) bool {
	other := takes
	if takes(a) {
		other = saves
	}
	for _, run := range runs {
		for _, b := range run {
			if b.Stage() == a.Stage() && b.Microbatch() == a.Microbatch() && other(b) {
				return true
			}
		}
	}
	return false
}
