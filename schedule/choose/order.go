package choose

import "github.com/weir-ml/weir/schedule"

// order is the list of tasks of each rank. The k-th of a kind and a block is for microbatch k.
type order [][]task

// peak returns the most bytes that are live on a rank.
func (s *shop) peak(rank int, tasks []task) int64 {
	live := s.base[rank]
	most := live
	for _, t := range tasks {
		most = max(most, live+s.bytes[t].up)
		live += s.bytes[t].net
	}
	return most
}

// size returns the bytes on the fullest rank.
func (s *shop) size(o order) (most int64) {
	for rank, tasks := range o {
		most = max(most, s.peak(rank, tasks))
	}
	return most
}

// plan returns the plan of an order that is cut like this, with its blocks placed on
// their ranks.
func (s *shop) plan(name string, o order, c cut) *schedule.Plan {
	last := s.blocks[len(s.blocks)-1].end
	plan := &schedule.Plan{
		Name: name, Placement: schedule.Placement{Ranks: s.ranks, Rank: make([]int, last)},
		Microbatches: s.microbatches + c.times*c.stride, Programs: make([][]schedule.Segment, s.ranks),
	}
	for _, b := range s.blocks {
		for stage := b.first; stage < b.end; stage++ {
			plan.Placement.Rank[stage] = b.rank
		}
	}
	for rank, tasks := range o {
		from, to := len(tasks), len(tasks)
		if c.times > 0 {
			from, to = c.from[rank], c.to[rank]
		}
		actions, places := s.actions(tasks, c.times*c.stride, to)
		before, during, behind := actions[:places[from]], actions[places[from]:places[to]], actions[places[to]:]
		for _, part := range []schedule.Segment{
			{Body: before, Repeat: 1}, {Body: during, Repeat: 1 + c.times, Stride: c.stride}, {Body: behind, Repeat: 1},
		} {
			if len(part.Body) > 0 {
				plan.Programs[rank] = append(plan.Programs[rank], part)
			}
		}
	}
	return plan
}

// actions returns the actions of tasks, and the index of the first action of each task. From one
// task on, later is added to the microbatches.
func (s *shop) actions(tasks []task, later, from int) ([]schedule.Action, []int) {
	var actions []schedule.Action
	places := make([]int, 0, len(tasks)+1)
	begun := make([]int, len(s.time))
	for i, t := range tasks {
		places = append(places, len(actions))
		mb, own := begun[t], s.blocks[t.block()]
		begun[t]++
		if i >= from {
			mb += later
		}
		for k := range own.end - own.first {
			switch {
			case t.part() == forward:
				actions = append(actions, schedule.Act(schedule.F, own.first+k, mb))
			case t.part() == weight:
				actions = append(actions, schedule.Act(schedule.W, own.end-1-k, mb))
			case s.split:
				actions = append(actions, schedule.Act(schedule.I, own.end-1-k, mb))
			default:
				actions = append(actions, schedule.Act(schedule.B, own.end-1-k, mb))
			}
		}
	}
	return actions, append(places, len(actions))
}
