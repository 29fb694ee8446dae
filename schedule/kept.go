package schedule

// kept returns the program of a plan in which every stage trains without the actions that this
// plan's mode and frozen stages rule out: a stage without a backward keeps F alone, a frozen one
// after a stage that trains has I for B and no W. Segments that continue each other become one.
func (p *Plan) kept(program []Segment) []Segment {
	var left Builder
	for _, s := range flatten(program) {
		body := make([]Action, 0, len(s.Body))
		for _, a := range s.Body {
			switch kind := p.runs(a); {
			case kind != None:
				body = append(body, Act(kind, a.Stage(), a.Microbatch()).WithJoin(a.Joined()))
			case len(body) > 0: // nothing overlaps with a removed action
				body[len(body)-1] = body[len(body)-1].WithJoin(false)
			}
		}
		s.Body = body
		left.Segment(s)
	}
	return left.Program()
}

// runs returns the kind that an action of a training of all stages has in this
// plan, None if it is not run.
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
