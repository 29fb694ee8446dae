package simulate

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// survey looks at every body once: whether its actions can be of this plan, what is
// sent, and which sends are waited for. A plan that it accepts can be run without looking
// again. It adds at most one fault.
func (s *simulation) survey(c *check.Checker) {
	stages := s.plan.Placement.Stages()
	runs, has := s.kinds(), make([]uint32, stages) // by stage: a bit for each kind
	for rank, program := range s.plan.Programs {
		var position int64
		for i := range program {
			segment := &program[i]
			for k, a := range segment.Body {
				stage, kind := a.Stage(), a.Kind()
				if stage >= stages || runs[stage]>>kind&1 == 0 || s.misplaced(rank, segment, k) {
					c.Add(s.refusal(rank, segment, k, position+int64(k)))
					return
				}
				has[stage] |= 1 << kind
			}
			position += int64(len(segment.Body)) * int64(segment.Repeat)
		}
	}
	for i := range s.passages {
		p := &s.passages[i]
		p.waits = has[p.from]>>p.wait&1 == 1
		s.transfers = s.transfers || (has[p.from]>>p.send|has[p.to]>>p.receive|has[p.from]>>p.wait)&1 == 1
	}
}

// kinds returns by stage a bit for each kind of action that it can have. It has
// transfers only of what passes between ranks.
func (s *simulation) kinds() []uint32 {
	kinds := make([]uint32, s.plan.Placement.Stages())
	for stage := range kinds {
		kinds[stage] = 1<<schedule.F | 1<<schedule.B | 1<<schedule.I | 1<<schedule.W | 1<<schedule.Unshard | 1<<schedule.Reshard | 1<<schedule.ReduceGrad | 1<<schedule.Quantize
	}
	for _, p := range s.passages {
		if p.crosses {
			kinds[p.from] |= 1<<p.send | 1<<p.wait
			kinds[p.to] |= 1 << p.receive
		}
	}
	return kinds
}

// misplaced reports whether an action of a body is on the wrong rank, of a microbatch
// that there is not, or joined with what cannot overlap.
func (s *simulation) misplaced(rank int, segment *schedule.Segment, i int) bool {
	a := segment.Body[i]
	lowest, highest := microbatchesOf(segment, a)
	return s.plan.Placement.Rank[a.Stage()] != rank || lowest < 0 || highest >= int64(s.plan.Microbatches) ||
		a.Joined() && (i+1 == len(segment.Body) || !a.Kind().Compute() || !segment.Body[i+1].Kind().Compute() || segment.Body[i+1].Joined())
}

// microbatchesOf returns the lowest and the highest microbatch that an action of the
// body has in any repeat. Kinds that are of a stage alone have none.
func microbatchesOf(s *schedule.Segment, a schedule.Action) (lowest, highest int64) {
	if a.Kind().OfStage() {
		return 0, 0
	}
	first := int64(a.Microbatch())
	last := first + int64(s.Repeat-1)*int64(s.Stride)
	return min(first, last), max(first, last)
}

// refusal returns the fault of an action that cannot be run.
func (s *simulation) refusal(rank int, segment *schedule.Segment, i int, position int64) check.Fault {
	a, p := segment.Body[i], s.plan.Placement
	f := check.Fault{Rank: rank, Position: position, Action: a}
	text := ""
	switch lowest, highest := microbatchesOf(segment, a); {
	case a.Stage() >= p.Stages():
		f.Code, text = check.UnknownStage, fmt.Sprintf("is of a stage that the placement does not have; stages are 0 to %d", p.Stages()-1)
	case p.Rank[a.Stage()] != rank:
		f.Code, text = check.WrongRank, fmt.Sprintf("is on the wrong rank; move it to rank %d, which has stage %d", p.Rank[a.Stage()], a.Stage())
	case lowest < 0 || highest >= int64(s.plan.Microbatches):
		f.Code, text = check.UnknownMicrobatch, fmt.Sprintf("is of a microbatch that the plan does not have, here or in another repeat; microbatches are 0 to %d", s.plan.Microbatches-1)
	case s.kinds()[a.Stage()]>>a.Kind()&1 == 1:
		f.Code, text = check.BadJoin, "is joined with what cannot overlap; join two computations of one body, and no third"
	case a.Kind() >= schedule.SendF && a.Kind() <= schedule.WaitB:
		f.Code, text = check.Unexpected, "passes nothing between ranks; take it out"
	default:
		f.Code, text = check.Unexpected, "is nothing that can be simulated; take it out"
	}
	f.Text = fmt.Sprintf("Rank %d, action %d: %v %s.", rank, position, a, text)
	return f
}
