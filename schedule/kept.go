package schedule

// kept removes the actions that the plan's mode and frozen stages exclude from a program in which
// every stage trains. A stage without a backward keeps only F; a frozen stage after a stage that
// trains runs I instead of B, and no W. kept merges a segment with the segment that it continues.
func (p *Plan) kept(program []Segment) []Segment {
	var left Builder
	for _, s := range flatten(program) {
		body := make([]Action, 0, len(s.Body))
		for _, a := range s.Body {
			switch kind := p.runs(a); {
			case kind != None:
				body = append(body, NewAction(kind, a.Stage(), a.Microbatch()).WithJoin(a.Joined()))
			case len(body) > 0: // nothing overlaps a removed action
				body[len(body)-1] = body[len(body)-1].WithJoin(false)
			}
		}
		s.Body = body
		left.Segment(s)
	}
	return left.Program()
}

// runs returns the kind of action that this plan runs in place of the given action of a program in
// which every stage trains, or None if the plan does not run the action.
func (p *Plan) runs(a Action) Kind {
	switch kind := a.Kind(); {
	case kind == F:
		return F
	case !p.HasBackward(a.Stage()):
		return None
	case !p.IsFrozen(a.Stage()):
		return kind
	case kind == B || kind == I:
		return I
	}
	return None
}
