package schedule

import "fmt"

// survey looks at every body once: whether its actions can be of this plan, what is
// sent, and which sends are waited for. What it accepts can be run without looking
// again. It adds at most one fault.
func (s *simulation) survey(c *checker) {
	stages := s.plan.Placement.Stages()
	s.waits = make([]uint32, stages)
	runs := make([]uint32, stages) // by stage: a bit for each kind that can be run
	for stage := range runs {
		runs[stage] = s.kinds(stage)
	}
	for rank, program := range s.plan.Programs {
		var position int64
		for i := range program {
			segment := &program[i]
			for k, a := range segment.Body {
				stage, kind := a.Stage(), a.Kind()
				if stage >= stages || runs[stage]>>kind&1 == 0 || s.misplaced(rank, segment, k) {
					c.add(s.refusal(rank, segment, k, position+int64(k)))
					return
				}
				s.transfers = s.transfers || kind >= SendF && kind <= WaitB
				if kind == WaitF || kind == WaitB {
					s.waits[stage] |= 1 << kind
				}
			}
			position += int64(len(segment.Body)) * int64(segment.Repeat)
		}
	}
}

// kinds returns a bit for each kind of action that a stage can have. A stage has
// transfers only of what passes between ranks.
func (s *simulation) kinds(stage int) uint32 {
	kinds := uint32(1<<F | 1<<B | 1<<I | 1<<W | 1<<Unshard | 1<<Reshard | 1<<ReduceGrad)
	forward, back := s.crosses(stage)
	if forward {
		kinds |= 1<<SendF | 1<<WaitF
	}
	if back {
		kinds |= 1<<SendB | 1<<WaitB
	}
	if p := s.plan.Placement; !p.First(stage) {
		if forward, _ := s.crosses(stage - 1); forward {
			kinds |= 1 << RecvF
		}
	}
	if p := s.plan.Placement; !p.Last(stage) {
		if _, back := s.crosses(stage + 1); back {
			kinds |= 1 << RecvB
		}
	}
	return kinds
}

// misplaced reports whether an action of a body is on the wrong rank, of a microbatch
// that there is not, or joined with what cannot overlap.
func (s *simulation) misplaced(rank int, segment *Segment, i int) bool {
	a := segment.Body[i]
	lowest, highest := segment.microbatches(a)
	return s.plan.Placement.Rank[a.Stage()] != rank || lowest < 0 || highest >= int64(s.plan.Microbatches) ||
		a.Joined() && (i+1 == len(segment.Body) || !a.Kind().Compute() || !segment.Body[i+1].Kind().Compute() || segment.Body[i+1].Joined())
}

// microbatches returns the lowest and the highest microbatch that an action of the
// body has in any repeat. Kinds that are of a stage alone have none.
func (s *Segment) microbatches(a Action) (lowest, highest int64) {
	if a.Kind().ofStage() {
		return 0, 0
	}
	first := int64(a.Microbatch())
	last := first + int64(s.Repeat-1)*int64(s.Stride)
	return min(first, last), max(first, last)
}

// refusal returns the fault of an action that cannot be run.
func (s *simulation) refusal(rank int, segment *Segment, i int, position int64) Fault {
	a, p := segment.Body[i], s.plan.Placement
	f := Fault{Rank: rank, Position: position, Action: a}
	text := ""
	switch lowest, highest := segment.microbatches(a); {
	case a.Stage() >= p.Stages():
		f.Code, text = UnknownStage, fmt.Sprintf("is of a stage that the placement does not have; stages are 0 to %d", p.Stages()-1)
	case p.Rank[a.Stage()] != rank:
		f.Code, text = WrongRank, fmt.Sprintf("is on the wrong rank; move it to rank %d, which has stage %d", p.Rank[a.Stage()], a.Stage())
	case lowest < 0 || highest >= int64(s.plan.Microbatches):
		f.Code, text = UnknownMicrobatch, fmt.Sprintf("is of a microbatch that the plan does not have, here or in another repeat; microbatches are 0 to %d", s.plan.Microbatches-1)
	case a.Kind() >= SendF && a.Kind() <= WaitB:
		f.Code, text = Unexpected, "passes nothing between ranks; take it out"
	case s.kinds(a.Stage())>>a.Kind()&1 == 0:
		f.Code, text = Unexpected, "is nothing that can be simulated; take it out"
	default:
		f.Code, text = BadJoin, "is joined with what cannot overlap; join two computations of one body, and no third"
	}
	f.Text = fmt.Sprintf("Rank %d, action %d: %v %s.", rank, position, a, text)
	return f
}
