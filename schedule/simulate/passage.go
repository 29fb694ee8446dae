package simulate

import "github.com/weir-ml/weir/schedule"

// passage is what one stage hands to a neighbour for each microbatch: its output to
// the next one, or the gradient of its input to the one before.
type passage struct {
	from, to            int  // stages
	crosses             bool // to another rank
	bytes               int64
	kinds               []schedule.Kind // of the computations that make it and read it
	send, receive, wait schedule.Kind
	waits               bool // the plan waits for its sends
}

// newPassages returns what the stages of the plan hand to each other.
func (s *simulation) newPassages() []passage {
	var list []passage
	p := s.plan.Placement
	for stage := range p.Stages() {
		costs := s.costs.Of(stage)
		if !p.Last(stage) {
			list = append(list, passage{from: stage, to: stage + 1, bytes: costs.Output,
				kinds: []schedule.Kind{schedule.F}, send: schedule.SendF, receive: schedule.RecvF, wait: schedule.WaitF})
		}
		if !p.First(stage) && s.plan.HasBackward(stage-1) {
			list = append(list, passage{from: stage, to: stage - 1, bytes: costs.Gradient,
				kinds: []schedule.Kind{schedule.B, schedule.I}, send: schedule.SendB, receive: schedule.RecvB, wait: schedule.WaitB})
		}
	}
	for i := range list {
		list[i].crosses = p.Rank[list[i].from] != p.Rank[list[i].to]
	}
	return list
}
