package lower

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// Shard returns a plan for sharded weights. On each rank, the weights of the next stages that the rank
// will compute are gathered; the parameter gathered is the number of these stages. Immediately before a
// computation that changes this set of stages, the rank releases the weights of stages that leave the
// set (RESHARD) and gathers the weights of stages that enter it (UNSHARD), in the order in which it
// computes these stages. At the end it releases all weights.
//
// The weights of both stages of a joined pair are gathered before the pair, so a plan with pairs
// needs at least two gathered stages, and any other plan needs at least one. The error wraps ErrParams
// if the number is too small, if the plan already gathers weights, or if it makes copies of weights;
// run [Quantize] after Shard. The result has no drops. The cost depends on the size of the plan's
// segments, each of which becomes a few segments.
func Shard(plan *schedule.Plan, gathered int) (*schedule.Plan, error) {
	return shard(plan, slices.Repeat([]int{gathered}, len(plan.Programs)))
}

// shard is like Shard, but with a separate number of gathered stages for each rank.
func shard(plan *schedule.Plan, numbers []int) (*schedule.Plan, error) {
	if len(numbers) != len(plan.Programs) {
		return nil, diagnostic.Errorf(schedule.ErrParams, "there are %d numbers of gathered stages for %d ranks: give one for each", len(numbers), len(plan.Programs))
	}
	for rank, program := range plan.Programs {
		number := numbers[rank]
		if number < 1 {
			return nil, diagnostic.Errorf(schedule.ErrParams, "%d stages are gathered at once: use at least 1", number)
		}
		for a := range schedule.StaticActions(program) {
			if a.Kind() == schedule.Unshard || a.Kind() == schedule.Reshard {
				return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q already has %v: use the plan without it", plan.Name, a)
			}
			if a.Kind() == schedule.Quantize {
				return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q already has %v, whose weights would not be gathered: run Shard first, then Quantize", plan.Name, a)
			}
			if a.Joined() && number < 2 {
				return nil, diagnostic.Errorf(schedule.ErrParams, "one stage is gathered at once, and plan %q joins pairs of two (%v): use at least 2", plan.Name, a)
			}
		}
	}
	sharded := withoutDrops(plan).Flat()
	for rank, program := range sharded.Programs {
		sharded.Programs[rank] = withGathering(program, numbers[rank])
	}
	return sharded, nil
}

// withGathering returns the program with UNSHARDs and RESHARDs that keep active stages gathered. It
// cuts off the first and last repeats of each segment, because the stages before the first repeat and
// after the last repeat may differ from the stages around the other repeats.
func withGathering(program []schedule.Segment, active int) []schedule.Segment {
	var pieces []schedule.Segment
	for _, s := range program {
		before, last := cut(s, s.Repeat-1)
		pieces = append(append(pieces, before...), last...)
	}
	windows := make([][][]int, len(pieces))
	var upcoming []int
	for i, s := range slices.Backward(pieces) {
		windows[i], upcoming = stageWindows(s.Body, active, upcoming)
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

// stageWindows returns, for each action of a body that is a computation or begins a pair, the stages
// that must be gathered at that point, in the order of their next computations. upcoming lists the
// stages in the order of their next computations after the body; the second result is the
// corresponding list at the start of the body.
func stageWindows(body []schedule.Action, active int, upcoming []int) ([][]int, []int) {
	upcoming = slices.Clone(upcoming)
	windows := make([][]int, len(body))
	var all []int // the storage for the windows; equal adjacent windows share storage
	var window []int
	for i, a := range slices.Backward(body) {
		if !a.Kind().Compute() {
			continue
		}
		at := slices.Index(upcoming, a.Stage())
		if at < 0 {
			at = len(upcoming)
			upcoming = append(upcoming, 0)
		}
		copy(upcoming[1:at+1], upcoming[:at])
		upcoming[0] = a.Stage()
		if i > 0 && body[i-1].Joined() {
			continue
		}
		if next := upcoming[:min(active, len(upcoming))]; !slices.Equal(window, next) {
			first := len(all)
			all = append(all, next...)
			window = all[first:len(all):len(all)]
		}
		windows[i] = window
	}
	return windows, upcoming
}

// gather returns the actions of a body with the necessary UNSHARDs and RESHARDs, and the stages that are
// gathered after the body. windows is the result of stageWindows for the body; gathered lists the stages
// that are gathered before it.
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

// change appends a RESHARD for each gathered stage that is not wanted, lower stages first, and then
// an UNSHARD for each wanted stage that is not gathered.
func change(list []schedule.Action, gathered, wanted []int) []schedule.Action {
	first := len(list)
	for _, stage := range gathered {
		if !slices.Contains(wanted, stage) {
			list = append(list, schedule.NewAction(schedule.Reshard, stage, 0))
		}
	}
	slices.Sort(list[first:])
	for _, stage := range wanted {
		if !slices.Contains(gathered, stage) {
			list = append(list, schedule.NewAction(schedule.Unshard, stage, 0))
		}
	}
	return list
}
