package schedule

import (
	"fmt"
	"strings"
)

// stuck returns the error of ranks that wait for ever.
func (s *simulation) stuck() error {
	const named = 16
	var b strings.Builder
	n, first := 0, Fault{}
	for rank := range s.ranks {
		r, program := &s.ranks[rank], s.plan.Programs[rank]
		if r.segment == len(program) {
			continue
		}
		segment := &program[r.segment]
		a := segment.Body[r.index].Shift(r.repeat * segment.Stride)
		if n++; n == 1 {
			first = Fault{Code: Deadlock, Rank: rank, Position: r.position, Action: a}
		}
		if n <= named {
			what, peer := s.missing(a)
			fmt.Fprintf(&b, " rank %d stands before action %d, %v, and waits for %v of rank %d;", rank, r.position, a, what, peer)
		}
	}
	if n > named {
		fmt.Fprintf(&b, " so do %d more ranks;", n-named)
	}
	first.Text = "No rank can go on:" + b.String() + " Check says what to move."
	return &PlanError{Plan: s.plan.Name, Faults: []Fault{first}}
}

// missing returns what an action that cannot run waits for, and the rank of that.
func (s *simulation) missing(a Action) (Action, int) {
	d, stage, mb := s.deed(a), a.Stage(), a.Microbatch()
	switch a.Kind() {
	case SendF, SendB:
		way := &s.routes[d.link]
		kind, next := RecvF, stage+1
		if a.Kind() == SendB {
			kind, next = RecvB, stage-1
		}
		if p := s.boxes[way.box].first(); p != nil {
			next, mb = Action(p.key<<stageShift).Stage(), Action(p.key<<stageShift).Microbatch()
		}
		return Act(kind, next, mb), way.to
	case WaitF:
		return Act(RecvF, stage+1, mb), d.peer
	case WaitB:
		return Act(RecvB, stage-1, mb), d.peer
	case RecvF:
		return Act(SendF, stage-1, mb), d.peer
	case RecvB:
		return Act(SendB, stage+1, mb), d.peer
	case F:
		return Act(F, stage-1, mb), d.peer
	}
	return Act(s.gradient(stage+1, mb), stage+1, mb), d.peer
}

// gradient returns the kind of backward that the plan has of a stage and a
// microbatch; B where it has none.
func (s *simulation) gradient(stage, mb int) Kind {
	for _, segment := range s.plan.Programs[s.plan.Placement.Rank[stage]] {
		for _, a := range segment.Body {
			if a.Kind() != I || a.Stage() != stage {
				continue
			}
			if far := mb - a.Microbatch(); far == 0 || segment.Stride != 0 && far%segment.Stride == 0 &&
				far/segment.Stride >= 0 && far/segment.Stride < segment.Repeat {
				return I
			}
		}
	}
	return B
}
