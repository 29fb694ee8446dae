package choose

import "github.com/weir-ml/weir/schedule"

// order lists the tasks of each rank. The k-th occurrence of a task belongs to microbatch k.
type order [][]task

// size returns the peak bytes on the fullest rank.
func (s *jobShop) size(o order) (peak int64) {
	for rank, tasks := range o {
		live := s.resident[rank]
		peak = max(peak, live)
		for _, t := range tasks {
			peak = max(peak, live+s.bytes[t].peak)
			live += s.bytes[t].net
		}
	}
	return peak
}

// plan returns the plan of an order whose section between the cut's positions is repeated.
func (s *jobShop) plan(name string, o order, c cut) *schedule.Plan {
	last := s.blocks[len(s.blocks)-1].end
	plan := &schedule.Plan{
		Name: name, Placement: schedule.Placement{Ranks: s.ranks, Rank: make([]int, last)},
		Microbatches: s.microbatches + c.repeats*c.stride, Programs: make([][]schedule.Segment, s.ranks),
	}
	for _, b := range s.blocks {
		for stage := b.first; stage < b.end; stage++ {
			plan.Placement.Rank[stage] = b.rank
		}
	}
	for rank, tasks := range o {
		from, to := len(tasks), len(tasks)
		if c.repeats > 0 {
			from, to = c.from[rank], c.to[rank]
		}
		actions, first := s.actions(tasks, c.repeats*c.stride, to)
		for _, segment := range []schedule.Segment{
			{Body: actions[:first[from]], Repeat: 1},
			{Body: actions[first[from]:first[to]], Repeat: 1 + c.repeats, Stride: c.stride},
			{Body: actions[first[to]:], Repeat: 1},
		} {
			if len(segment.Body) > 0 {
				plan.Programs[rank] = append(plan.Programs[rank], segment)
			}
		}
	}
	return plan
}

// actions returns the actions of a rank's tasks, and the index of the first action of each task,
// followed by the number of actions. It adds shift to the microbatches of all tasks at index tail or
// later.
func (s *jobShop) actions(tasks []task, shift, tail int) (actions []schedule.Action, first []int) {
	started := make([]int, len(s.duration))
	for i, t := range tasks {
		first = append(first, len(actions))
		mb, block := started[t], s.blocks[t.block()]
		started[t]++
		if i >= tail {
			mb += shift
		}
		for k := range block.end - block.first {
			switch {
			case t.part() == forward:
				actions = append(actions, schedule.NewAction(schedule.F, block.first+k, mb))
			case t.part() == weight:
				actions = append(actions, schedule.NewAction(schedule.W, block.end-1-k, mb))
			case s.split:
				actions = append(actions, schedule.NewAction(schedule.I, block.end-1-k, mb))
			default:
				actions = append(actions, schedule.NewAction(schedule.B, block.end-1-k, mb))
			}
		}
	}
	return actions, append(first, len(actions))
}
