package passes

import "github.com/weir-ml/weir/schedule"

// Cursor is where a rank is in its program.
type Cursor struct {
	Program  []schedule.Segment
	Segment  int
	Repeat   int
	Index    int
	Position int64
}

// Action returns the rank's next action; false at the end.
func (p *Cursor) Action() (schedule.Action, bool) {
	if p.Segment == len(p.Program) {
		return 0, false
	}
	s := &p.Program[p.Segment]
	a := s.Body[p.Index]
	if p.Repeat > 0 {
		a = a.Shift(p.Repeat * s.Stride)
	}
	return a, true
}

func (p *Cursor) Advance() {
	s := &p.Program[p.Segment]
	p.Position++
	if p.Index++; p.Index < len(s.Body) {
		return
	}
	p.Index = 0
	if p.Repeat++; p.Repeat < s.Repeat {
		return
	}
	p.Repeat, p.Segment = 0, p.Segment+1
}

// repeating returns the segment in which the rank is, nil if it has no repeats.
func (p *Cursor) repeating() *schedule.Segment {
	if p.Segment == len(p.Program) || p.Program[p.Segment].Repeat == 1 {
		return nil
	}
	return &p.Program[p.Segment]
}

// body returns the number of actions of the body in which the rank is.
func (p *Cursor) body() int {
	if p.Segment == len(p.Program) {
		return 0
	}
	return len(p.Program[p.Segment].Body)
}

// Partner returns the action behind the rank's next one, in the same repeat: the other
// one of a joined pair. It is the zero action at the end of a body.
func (p *Cursor) Partner() schedule.Action {
	s := &p.Program[p.Segment]
	if p.Index+1 == len(s.Body) {
		return 0
	}
	return s.Body[p.Index+1].Shift(p.Repeat * s.Stride)
}
