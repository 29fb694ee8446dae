package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// The trainers below load PyTorch's compute-only CSV. They are given the name of a schedule as well, which
// decides how many stages a rank has and which ones, whatever the file says: torchtitan 0.3.0 in
// distributed/pipeline_parallel.py (_get_pipeline_metadata, _get_pp_rank_to_stage_indices_mapping), and
// nemo-automodel 0.7.0 in components/distributed/pipelining/functional.py (calculate_virtual_stages,
// split_model_into_stages).

// inV lists, by trainer, the schedules for which it places two stages on each rank in a V.
var inV = map[string][]string{
	"torchtitan": {"ZBVZeroBubble", "DualPipeV"},
	"automodel":  {"ZBVZeroBubble"},
}

// scheduleNames lists the names that PyTorch 2.15 knows (get_schedule_class). The first oneStage of them have
// one stage on each rank, the others at least two.
var scheduleNames = []string{
	"1F1B", "GPipe", "PipelineScheduleSingle",
	"PipelineScheduleMulti", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV",
}

const oneStage = 3

// misplaced returns a rank whose stages are not those that a trainer gives it for a schedule's name, or -1.
func misplaced(trainer, name string, place schedule.Placement) int {
	ranks, stages := place.Ranks, place.Stages()
	own := schedule.Looped(ranks, stages)
	v, single := slices.Contains(inV[trainer], name), slices.Index(scheduleNames, name) < oneStage
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

// loaded checks a file against the runtime that the flags name. It returns the faults for which the
// runtime refuses the file or runs it incorrectly, and the schedule names under which it runs.
func (c *checkCmd) loaded(file *format.File) (found faults, names []string, err error) {
	_, trains := inV[c.Runtime]
	given := slices.IndexFunc(scheduleNames, func(name string) bool { return strings.EqualFold(name, c.Schedule) })
	switch {
	case c.Schedule != "" && !trains:
		return nil, nil, usage("--schedule %s is the name that torchtitan or automodel is given: give --runtime as well", c.Schedule)
	case c.Schedule != "" && given < 0:
		return nil, nil, usage("--schedule %s: %s knows %s", c.Schedule, c.Runtime, strings.Join(scheduleNames, ", "))
	case trains && file == nil:
		return nil, nil, usage("--runtime %s checks a file: weir plan %s --to compute -o FILE writes one", c.Runtime, c.Plan)
	case file == nil || !trains && !strings.HasPrefix(c.Runtime, schedule.PyTorch.String()):
		return nil, nil, nil
	}
	add := func(rank int, text string, args ...any) {
		line, column := file.LineColumn(rank, -1)
		found = append(found, fault{File: file.Name, Line: line, Column: column, Text: fmt.Sprintf(text, args...)})
	}
	csv := file.Format == format.Compute || file.Format == format.Comms || file.Format == format.Comms26
	place := file.Plan.Placement
	if trains && file.Format != format.Compute {
		add(-1, "found the form %v, expected compute, which is all that %s loads: convert the file with --to compute.", file.Format, c.Runtime)
	}
	for _, f := range file.Refused() {
		found = append(found, fault{File: file.Name, Line: f.Line, Column: f.Column, Text: fmt.Sprintf("%s; weir convert --to %v writes it anew.", f.Text, file.Format)})
	}
	if csv && place.Copies > 1 {
		add(-1, "found two copies of the model, expected one: PyTorch runs every microbatch through every stage.")
	} else if csv && file.Plan.Mode == schedule.ForwardOnly {
		add(-1, "found no backward, expected one for every forward: PyTorch loads plans for training alone.")
	}
	if last := place.Stages() - 1; csv && place.Copies <= 1 {
		position, before := int64(0), -1
		for a := range file.Plan.All(place.Rank[last]) {
			if a.Stage() == last && a.Kind() == schedule.F {
				if mb := a.Microbatch(); mb < before {
					line, column := file.LineColumn(place.Rank[last], position)
					found = append(found, fault{File: file.Name, Line: line, Column: column, Text: fmt.Sprintf(
						"found %v after %v, expected ascending microbatches: PyTorch finds the loss of a microbatch by its place among the forwards of the last stage.", a, schedule.NewAction(schedule.F, last, before))})
					break
				}
				before = a.Microbatch()
			}
			position++
		}
	}
	if !trains || len(found) > 0 {
		return found, nil, nil
	}
	names = slices.DeleteFunc(slices.Clone(scheduleNames), func(name string) bool { return misplaced(c.Runtime, name, place) >= 0 })
	if c.Schedule == "" && len(names) > 0 {
		return nil, names, nil
	}
	name, fix := scheduleNames[max(given, 0)], "give it "+strings.Join(names, " or ")
	rank := misplaced(c.Runtime, name, place)
	if len(names) == 0 {
		name, fix = "of any name", "give every rank equally many stages, in a loop, or two in a V"
	}
	if rank >= 0 {
		add(rank, "found stages %s on rank %d, where %s puts others with the schedule %s: %s.", numberList(place.On(rank)), rank, c.Runtime, name, fix)
	}
	return found, []string{name}, nil
}
