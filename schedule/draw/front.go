package draw

// Front is a rank's progress in a step that hangs. The actions that begin at Time or later have not run.
type Front struct {
	Time    int64
	Name    string // of the rank; "" means its number in the plan
	Blamed  bool   // the step waits for this rank
	Explain string // for messages: the action at which the rank waits, and the reason
}

// TimeAt returns the time at which a rank begins the action at a position of its program, or the nearest
// time between the start of the step's first computation and the end of its last one. The position after the
// last action is the end of the step.
func (s *Step) TimeAt(rank int, position int64) int64 {
	c := s.clocks()
	for _, e := range s.Events[rank] {
		if e.Position >= position {
			return min(max(e.Start, c.first), c.last)
		}
	}
	return c.last
}

// front fades the actions that have not run, and draws a line before them.
func (p *picture) front() {
	if p.step.Front == nil {
		return
	}
	end, path := left+p.plot, ""
	for rank, f := range p.step.Front {
		x, y := p.x(f.Time), p.y(rank)
		p.printf(`<rect class="page" fill-opacity="0.72" x="%s" y="%s" width="%s" height="%s"/>`+"\n", at(x), at(y-1), at(max(end-x, 0)), at(lane+2))
		step := "L"
		if rank == 0 {
			step = "M"
		}
		path += step + at(x) + " " + at(y-gap/3) + "V" + at(y+lane+gap/3)
	}
	p.printf(`<path class="front" d="%s"/>`+"\n", path)
	for rank, f := range p.step.Front {
		x, y, radius := p.x(f.Time), p.y(rank)+lane/2, 3.5
		if f.Blamed {
			radius = 7
		}
		p.printf(`<circle class="at" cx="%s" cy="%s" r="%s"><title>%s</title></circle>`+"\n", at(x), at(y), at(radius), escape(f.Explain))
	}
}
