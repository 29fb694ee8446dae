package trainers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// The trainers below load PyTorch's compute-only CSV. They are also given the name of a schedule. This name,
// not the file, decides which stages each rank has: see torchtitan 0.3.0 in distributed/pipeline_parallel.py
// (_get_pipeline_metadata, _get_pp_rank_to_stage_indices_mapping), and nemo-automodel 0.7.0 in
// components/distributed/pipelining/functional.py (calculate_virtual_stages, split_model_into_stages).

// inV lists, by trainer, the schedules for which it places two stages on each rank in a V.
var inV = map[string][]string{
	"torchtitan": {"ZBVZeroBubble", "DualPipeV"},
	"automodel":  {"ZBVZeroBubble"},
}

// Schedules lists the names that PyTorch 2.15 knows (get_schedule_class). The first oneStage of them have
// one stage on each rank, the others at least two.
var Schedules = []string{
	"1F1B", "GPipe", "PipelineScheduleSingle",
	"PipelineScheduleMulti", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV",
}

const oneStage = 3

// misplaced returns a rank on which a trainer, given the name of a schedule, does not place the stages that the
// plan places there, or -1.
func misplaced(trainer, name string, place schedule.Placement) int {
	ranks, stages := place.Ranks, place.Stages()
	own := schedule.Looped(ranks, stages)
	v, single := slices.Contains(inV[trainer], name), slices.Index(Schedules, name) < oneStage
	if v {
		own = schedule.Wave(ranks, stages)
	}
	if stages%ranks != 0 || single != (stages == ranks) || v && stages != 2*ranks {
		return 0
	}
	for rank := range ranks {
		if !slices.Equal(own.On(rank), place.On(rank)) {
			return rank
		}
	}
	return -1
}

// Known reports whether the trainer places stages by the name of a schedule.
func Known(trainer string) bool { return inV[trainer] != nil }

// Check returns the faults for which a trainer, or PyTorch's own runtime, refuses a file or runs it
// incorrectly, and the names of the schedules under which the trainer runs it. The schedule is the name that
// the trainer is given; if it is "", every name is tried.
func Check(file *format.File, trainer, name string) (found []*format.Error, names []string) {
	add := func(rank int, position int64, text string, args ...any) {
		line, column := file.LineColumn(rank, position)
		found = append(found, &format.Error{Name: file.Name, Line: line, Column: column, Text: fmt.Sprintf(text, args...)})
	}
	trains := Known(trainer)
	csv := file.Format == format.Compute || file.Format == format.Comms || file.Format == format.Comms26
	place := file.Plan.Placement
	if trains && file.Format != format.Compute {
		add(-1, -1, "found the form %v, expected compute, which is all that %s loads: convert the file with --to compute.", file.Format, trainer)
	}
	for _, f := range file.Refused() {
		f.Text = fmt.Sprintf("%s; weir convert --to %v writes it anew.", f.Text, file.Format)
		found = append(found, f)
	}
	if csv && place.Copies > 1 {
		add(-1, -1, "found two copies of the model, expected one: PyTorch runs every microbatch through every stage.")
	} else if csv && file.Plan.Mode == schedule.ForwardOnly {
		add(-1, -1, "found no backward, expected one for every forward: PyTorch loads plans for training alone.")
	}
	if last := place.Stages() - 1; csv && place.Copies <= 1 {
		position, before := int64(0), -1
		for a := range file.Plan.All(place.Rank[last]) {
			if a.Stage() == last && a.Kind() == schedule.F {
				if mb := a.Microbatch(); mb < before {
					add(place.Rank[last], position, "found %v after %v, expected ascending microbatches: PyTorch finds the loss of a microbatch by its place among the forwards of the last stage.", a, schedule.NewAction(schedule.F, last, before))
					break
				}
				before = a.Microbatch()
			}
			position++
		}
	}
	if !trains || len(found) > 0 {
		return found, nil
	}
	names = slices.DeleteFunc(slices.Clone(Schedules), func(name string) bool { return misplaced(trainer, name, place) >= 0 })
	if name == "" && len(names) > 0 {
		return nil, names
	}
	fix := "give it " + strings.Join(names, " or ")
	rank := misplaced(trainer, cmp.Or(name, Schedules[0]), place)
	if len(names) == 0 {
		name, fix = "of any name", "give every rank equally many stages, in a loop, or two in a V"
	}
	if rank >= 0 {
		own := place.On(rank)
		stages := strings.Trim(fmt.Sprint(own), "[]")
		if len(own) > 16 {
			stages = fmt.Sprintf("%d to %d", slices.Min(own), slices.Max(own))
		}
		add(rank, -1, "found stages %s on rank %d, where %s puts others with the schedule %s: %s.", stages, rank, trainer, name, fix)
	}
	return found, []string{name}
}
