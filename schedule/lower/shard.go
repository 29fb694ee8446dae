package lower

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Shard returns a plan for weights that are sharded. Every rank has gathered the active
// stages that it computes next, in the order in which it first computes them: right
// before a computation that changes which ones these are, it gives up the weights that
// are no longer among them (RESHARD) and gathers the new ones (UNSHARD), some stages
// ahead of their use. At the end it gives up the last ones.
//
// The weights of both stages of a joined pair are gathered before it, so a plan with pairs needs two
// active stages. Fewer, or none, is ErrParams, as is a plan that gathers already, and one that
// makes copies of weights: [Quantize] comes after this pass, so that it knows when the weights are
// gathered. Drops that the plan had are forgotten. The cost depends on the size of the plan as
// segments; each becomes a few.
func Shard(plan *schedule.Plan, active int) (*schedule.Plan, error) {
	if active < 1 {
		return nil, fmt.Errorf("%w: %d active stages: a rank has at least the one that it computes", schedule.ErrParams, active)
	}
	for _, program := range plan.Programs {
		for a := range schedule.Written(program) {
			if a.Kind() == schedule.Unshard || a.Kind() == schedule.Reshard {
				return nil, fmt.Errorf("%w: plan %q has %v already: give the plan without", schedule.ErrParams, plan.Name, a)
			}
			if a.Kind() == schedule.Quantize {
				return nil, fmt.Errorf("%w: plan %q has %v already, and its weights would not be there: use Shard first, then Quantize", schedule.ErrParams, plan.Name, a)
			}
			if a.Joined() && active < 2 {
				return nil, fmt.Errorf("%w: one active stage, and plan %q has joined pairs (%v): let there be two", schedule.ErrParams, plan.Name, a)
			}
		}
	}
	sharded := withoutDrops(plan).Flat()
	for rank, program := range sharded.Programs {
		sharded.Programs[rank] = gathered(program, active)
	}
	return sharded, nil
}

// gathered returns the program with the UNSHARD and RESHARD of its stages. Other stages come
// after the last repeat of a segment than after those before it, and others are gathered before
// the first one.
func gathered(program []schedule.Segment, active int) []schedule.Segment {
	var pieces []schedule.Segment
	for _, s := range program {
		most, last := cut(s, s.Repeat-1)
		pieces = append(append(pieces, most...), last...)
	}
	windows := make([][][]int, len(pieces))
	var coming []int
	for i, s := range slices.Backward(pieces) {
		windows[i], coming = stageWindows(s.Body, active, coming)
	}

	var list schedule.Builder
	var held []int // the stages that are gathered
	for i, s := range pieces {
		first, rest := cut(s, 1)
		first[0].Body, held = gather(first[0].Body, windows[i], held)
		list.Segment(first[0])
		for _, s := range rest {
			s.Body, held = gather(s.Body, windows[i], held)
			list.Segment(s)
		}
	}
	list.Segment(schedule.Segment{Body: change(nil, held, nil), Repeat: 1})
	return list.Program()
}

// stageWindows returns for each action of a body that begins a computation, or a pair, which
// stages are gathered then, in the order in which they come, given the order in which the
// stages come behind the body. It returns that order before the body as well.
func stageWindows(body []schedule.Action, active int, coming []int) ([][]int, []int) {
	coming = slices.Clone(coming)
	windows := make([][]int, len(body))
	var all []int // of the windows, those that are the same once
	var window []int
	for i, a := range slices.Backward(body) {
		if !a.Kind().Compute() {
			continue
		}
		at := slices.Index(coming, a.Stage())
		if at < 0 {
			at = len(coming)
			coming = append(coming, 0)
		}
		copy(coming[1:at+1], coming[:at])
		coming[0] = a.Stage()
		if i > 0 && body[i-1].Joined() {
			continue
		}
		if next := coming[:min(active, len(coming))]; !slices.Equal(window, next) {
			first := len(all)
			all = append(all, next...)
			window = all[first:len(all):len(all)]
		}
		windows[i] = window
	}
	return windows, coming
}

// gather returns the actions with the UNSHARD and RESHARD between them, and the stages that are
// gathered at the end.
func gather(body []schedule.Action, windows [][]int, gathered []int) ([]schedule.Action, []int) {
	list := make([]schedule.Action, 0, len(body))
	for i, a := range body {
		if window := windows[i]; window != nil {
			list = change(list, gathered, window)
			gathered = window
		}
		list = append(list, a)
	}
	return list, gathered
}

// change adds the RESHARD of stages that are held and not wanted, lower stages first, and the UNSHARD
// of those that are wanted and not held.
func change(list []schedule.Action, gathered, wanted []int) []schedule.Action {
	first := len(list)
	for _, stage := range gathered {
		if !slices.Contains(wanted, stage) {
			list = append(list, schedule.Act(schedule.Reshard, stage, 0))
		}
	}
	slices.Sort(list[first:])
	for _, stage := range wanted {
		if !slices.Contains(gathered, stage) {
			list = append(list, schedule.Act(schedule.Unshard, stage, 0))
		}
	}
	return list
}
