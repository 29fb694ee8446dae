package schedule

// kept removes the actions that the plan's mode and frozen stages exclude from a program in which
// every stage trains: a stage without a backward keeps only F, and a frozen stage after a stage that
// trains has I in place of B, and no W. Segments that continue each other are merged.
func (p *Plan) kept(program []Segment) []Segment {
	var left Builder
	for _, s := range flatten(program) {
		body := make([]Action, 0, len(s.Body))
		for _, a := range s.Body {
			switch kind := p.runs(a); {
			case kind != None:
				body = append(body, Act(kind, a.Stage(), a.Microbatch()).WithJoin(a.Joined()))
			case len(body) > 0: // nothing overlaps a removed action
				body[len(body)-1] = body[len(body)-1].WithJoin(false)
			}
		}
		s.Body = body
		left.Segment(s)
	}
	return left.Program()
}

// runs returns the kind that an action has in this plan, given its kind if every stage trains. It
// returns None if the plan does not run the action.
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
