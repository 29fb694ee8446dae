package passes

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Cursor is the position of a rank in its program.
type Cursor struct {
	Program  []schedule.Segment
	Segment  int
	Repeat   int
	Position int64

	inner, again int               // in a loop of loops the inner segment, and its repeat
	body         []schedule.Action // nil at the end
	shift        int               // that this repeat adds to the microbatches of the body
	Index        int               // in the body
}

// NewCursor returns the beginning of a segment of a program.
func NewCursor(program []schedule.Segment, segment int) Cursor {
	p := Cursor{Program: program, Segment: segment}
	p.enter()
	return p
}

// enter finds the body.
func (p *Cursor) enter() {
	if p.body = nil; p.Segment == len(p.Program) {
		return
	}
	s := &p.Program[p.Segment]
	p.shift = p.Repeat * s.Stride
	if s.Inner != nil {
		s = &s.Inner[p.inner]
		p.shift += p.again * s.Stride
	}
	p.body = s.Body
}

// Action returns the rank's next action; false at the end.
func (p *Cursor) Action() (schedule.Action, bool) {
	if p.body == nil {
		return 0, false
	}
	a := p.body[p.Index]
	if p.shift != 0 {
		a = a.Shift(p.shift)
	}
	return a, true
}

func (p *Cursor) Advance() {
	p.Position++
	if p.Index++; p.Index == len(p.body) {
		p.nextBody()
	}
}

func (p *Cursor) nextBody() {
	p.Index = 0
	p.leave()
	p.enter()
}

// leave goes on to the next repeat or segment.
func (p *Cursor) leave() {
	s := &p.Program[p.Segment]
	if s.Inner != nil {
		if p.again++; p.again < s.Inner[p.inner].Repeat {
			return
		}
		p.again = 0
		if p.inner++; p.inner < len(s.Inner) {
			return
		}
		p.inner = 0
	}
	if p.Repeat++; p.Repeat == s.Repeat {
		p.Repeat, p.Segment = 0, p.Segment+1
	}
}

// Skip goes on by n repeats of the rank's segment, which has as many left.
func (p *Cursor) Skip(n int) {
	if n > 0 {
		p.Repeat += n
		p.Position += int64(n) * p.Program[p.Segment].Len()
		p.enter()
	}
}

// Starts reports whether the rank is at the beginning of a repeat.
func (p *Cursor) Starts() bool { return p.Index == 0 && p.again == 0 && p.inner == 0 }

// SamePlace reports whether the rank is at the same place of a repeat as another one.
func (p *Cursor) SamePlace(other *Cursor) bool {
	return p.Index == other.Index && p.again == other.again && p.inner == other.inner
}

// repeating returns the rank's segment, nil if it does not repeat.
func (p *Cursor) repeating() *schedule.Segment {
	if p.Segment == len(p.Program) || p.Program[p.Segment].Repeat == 1 {
		return nil
	}
	return &p.Program[p.Segment]
}

// Partner returns the action after the rank's next one, in the same repeat: the second of a
// joined pair. It is the zero action at the end of a body.
func (p *Cursor) Partner() schedule.Action {
	if p.Index+1 == len(p.body) {
		return 0
	}
	return p.body[p.Index+1].Shift(p.shift)
}

// State enters where the rank is: one number that moves, its repeat.
func (p *Cursor) State(s *repeats.State) bool {
	return s.Fixed(int64(p.Segment)) && s.Fixed(int64(p.inner)) && s.Fixed(int64(p.again)) && s.Fixed(int64(p.Index)) && s.Moving(int64(p.Repeat))
}
