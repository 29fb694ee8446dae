package schedule

import "fmt"

// survey looks at every body once: whether its actions can be of this plan, what is
// sent, and which sends are waited for. What it accepts can be run without looking
// again. It adds at most one fault.
func (s *simulation) survey(c *checker) {
	s.waits = make([]uint32, s.plan.Placement.Stages())
	for rank, program := range s.plan.Programs {
		var position int64
		for _, segment := range program {
			for i, a := range segment.Body {
				if code, text := s.misplaced(rank, &segment, i); text != "" {
					c.add(Fault{Code: code, Rank: rank, Position: position + int64(i), Action: a,
						Text: fmt.Sprintf("Rank %d, action %d: %v %s.", rank, position+int64(i), a, text)})
					return
				}
				kind := a.Kind()
				s.transfers = s.transfers || kind >= SendF && kind <= WaitB
				if kind == WaitF || kind == WaitB {
					s.waits[a.Stage()] |= 1 << kind
				}
			}
			position += int64(len(segment.Body)) * int64(segment.Repeat)
		}
	}
	s.prepare()
}

// misplaced returns what makes an action of a body one that cannot be run, "" where
// nothing does.
func (s *simulation) misplaced(rank int, segment *Segment, i int) (Code, string) {
	a, p := segment.Body[i], s.plan.Placement
	stage, kind := a.Stage(), a.Kind()
	if stage >= p.Stages() {
		return UnknownStage, fmt.Sprintf("is of a stage that the placement does not have; stages are 0 to %d", p.Stages()-1)
	}
	if p.Rank[stage] != rank {
		return WrongRank, fmt.Sprintf("is on the wrong rank; move it to rank %d, which has stage %d", p.Rank[stage], stage)
	}
	if kind == None || kind > ReduceGrad {
		return Unexpected, "is nothing that can be simulated; take it out"
	}
	first := int64(a.Microbatch())
	last := first + int64(segment.Repeat-1)*int64(segment.Stride)
	if kind <= WaitB && max(first, last) >= int64(s.plan.Microbatches) || min(first, last) < 0 {
		return UnknownMicrobatch, fmt.Sprintf("is of a microbatch that the plan does not have, here or in a later repeat; microbatches are 0 to %d", s.plan.Microbatches-1)
	}
	if a.Joined() {
		if i+1 == len(segment.Body) || !kind.Compute() || !segment.Body[i+1].Kind().Compute() || segment.Body[i+1].Joined() {
			return BadJoin, "is joined with what cannot overlap; join two computations of one body, and no third"
		}
	}
	forward, back := s.crosses(stage)
	exists := true
	switch kind {
	case SendF, WaitF:
		exists = forward
	case SendB, WaitB:
		exists = back
	case RecvF:
		exists = !p.First(stage) && p.Rank[stage-1] != rank
	case RecvB:
		exists = !p.Last(stage) && p.Rank[stage+1] != rank && s.plan.HasBackward(stage)
	}
	if !exists {
		return Unexpected, "passes nothing between ranks; take it out"
	}
	return 0, ""
}
