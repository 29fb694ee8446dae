package schedule

// cursor is where a rank is in its program.
type cursor struct {
	program  []Segment
	segment  int
	repeat   int
	index    int
	position int64
}

// action returns the rank's next action; false at the end.
func (p *cursor) action() (Action, bool) {
	if p.segment == len(p.program) {
		return 0, false
	}
	s := &p.program[p.segment]
	a := s.Body[p.index]
	if p.repeat > 0 {
		a = a.Shift(p.repeat * s.Stride)
	}
	return a, true
}

func (p *cursor) advance() {
	s := &p.program[p.segment]
	p.position++
	if p.index++; p.index < len(s.Body) {
		return
	}
	p.index = 0
	if p.repeat++; p.repeat < s.Repeat {
		return
	}
	p.repeat, p.segment = 0, p.segment+1
}

// repeating returns the segment in which the rank is, nil if it has no repeats.
func (p *cursor) repeating() *Segment {
	if p.segment == len(p.program) || p.program[p.segment].Repeat == 1 {
		return nil
	}
	return &p.program[p.segment]
}

// body returns the number of actions of the body in which the rank is.
func (p *cursor) body() int {
	if p.segment == len(p.program) {
		return 0
	}
	return len(p.program[p.segment].Body)
}

// partner returns the action behind the rank's next one, in the same repeat: the other
// one of a joined pair. It is the zero action at the end of a body.
func (p *cursor) partner() Action {
	s := &p.program[p.segment]
	if p.index+1 == len(s.Body) {
		return 0
	}
	return s.Body[p.index+1].Shift(p.repeat * s.Stride)
}
