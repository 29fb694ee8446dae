package simulate

import "github.com/weir-ml/weir/schedule"

// survey reports whether every action, in every repeat, is valid in the plan, so that the simulation
// need not validate actions again. It also determines whether the plan has transfers, and which sends
// it waits for.
func (s *simulation) survey() bool {
	runs := s.kinds() // by stage: a bit for each kind that the stage can have
	for rank, program := range s.plan.Programs {
		for i := range program {
			segment := &program[i]
			for k, a := range segment.Body {
				stage, kind := a.Stage(), a.Kind()
				if stage >= s.outline.Stages || runs[stage]>>kind&1 == 0 || s.misplaced(rank, segment, k) {
					return false
				}
			}
		}
	}
	for i := range s.passages {
		p := &s.passages[i]
		p.waits = s.outline.Includes(p.from, p.wait)
		s.transfers = s.transfers || p.waits || s.outline.Includes(p.from, p.send) || s.outline.Includes(p.to, p.receive)
	}
	return true
}

// kinds returns, by stage, a bit for each kind of action that the stage can have. It can have transfers
// only for messages to or from another rank.
func (s *simulation) kinds() []uint32 {
	kinds := make([]uint32, s.plan.Placement.Stages())
	for stage := range kinds {
		kinds[stage] = 1<<schedule.F | 1<<schedule.B | 1<<schedule.I | 1<<schedule.W | 1<<schedule.Unshard | 1<<schedule.Reshard | 1<<schedule.ReduceGrad | 1<<schedule.ZeroGrad | 1<<schedule.WaitReduce | 1<<schedule.Quantize
	}
	for stage := range kinds {
		if s.outline.HasBackward(stage) {
			kinds[stage] |= 1<<schedule.Offload | 1<<schedule.WaitOffload | 1<<schedule.Reload
		}
	}
	for _, p := range s.passages {
		if p.crosses {
			kinds[p.from] |= 1<<p.send | 1<<p.wait
			kinds[p.to] |= 1 << p.receive
		}
	}
	return kinds
}

// misplaced reports whether an action of a body is on the wrong rank, has a microbatch out of range
// in some repeat, or is joined with an action that cannot overlap.
func (s *simulation) misplaced(rank int, segment *schedule.Segment, i int) bool {
	a := segment.Body[i]
	first, last := int64(0), int64(0) // microbatches
	if !a.Kind().OfStage() {
		first = int64(a.Microbatch())
		last = first + int64(segment.Repeat-1)*int64(segment.Stride)
	}
	return s.plan.Placement.Rank[a.Stage()] != rank || min(first, last) < 0 || max(first, last) >= int64(s.plan.Microbatches) ||
		a.Joined() && (i+1 == len(segment.Body) || !a.Kind().Compute() || !segment.Body[i+1].Kind().Compute() || segment.Body[i+1].Joined())
}
