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

	innerSegment, innerRepeat int               // in nested loops: the inner segment and its repeat
	innerRepeats, innerStride int               // of this inner segment
	body                      []schedule.Action // nil at the end
	shift                     int               // added to the microbatches of the body in this repeat
	Index                     int               // the index of the next action in the body
}

// NewCursor returns a cursor at the beginning of a segment of a program.
func NewCursor(program []schedule.Segment, segment int) Cursor {
	p := Cursor{Program: program, Segment: segment}
	p.enter()
	return p
}

// enter sets the body and shift for the current position.
func (p *Cursor) enter() {
	if p.body = nil; p.Segment == len(p.Program) {
		return
	}
	s := &p.Program[p.Segment]
	p.shift = p.Repeat * s.Stride
	if s.Inner != nil {
		s = &s.Inner[p.innerSegment]
		p.shift += p.innerRepeat * s.Stride
		p.innerRepeats, p.innerStride = s.Repeat, s.Stride
	}
	p.body = s.Body
}

// Action returns the rank's next action, or false at the end of the program.
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

// Advance moves the cursor to the action after the next one.
func (p *Cursor) Advance() {
	p.Position++
	if p.Index++; p.Index == len(p.body) {
		p.nextBody()
	}
}

func (p *Cursor) nextBody() {
	p.Index = 0
	if p.innerRepeat+1 < p.innerRepeats {
		p.innerRepeat++
		p.shift += p.innerStride
		return
	}
	p.innerRepeat, p.innerRepeats = 0, 0
	p.leave()
	p.enter()
}

// leave advances to the next inner segment, repeat or segment.
func (p *Cursor) leave() {
	s := &p.Program[p.Segment]
	if s.Inner != nil {
		if p.innerSegment++; p.innerSegment < len(s.Inner) {
			return
		}
		p.innerSegment = 0
	}
	if p.Repeat++; p.Repeat == s.Repeat {
		p.Repeat, p.Segment = 0, p.Segment+1
	}
}

// Skip advances by n repeats of the rank's segment, which must have at least n repeats left.
func (p *Cursor) Skip(n int) {
	if n > 0 {
		p.Repeat += n
		p.Position += int64(n) * p.Program[p.Segment].Len()
		p.enter()
	}
}

// Starts reports whether the rank is at the beginning of a repeat.
func (p *Cursor) Starts() bool { return p.Index == 0 && p.innerRepeat == 0 && p.innerSegment == 0 }

// SamePlace reports whether two cursors are at the same action of a repeat.
func (p *Cursor) SamePlace(other *Cursor) bool {
	return p.Index == other.Index && p.innerRepeat == other.innerRepeat && p.innerSegment == other.innerSegment
}

// repeating returns the rank's segment, or nil if it does not repeat or the program has ended.
func (p *Cursor) repeating() *schedule.Segment {
	if p.Segment == len(p.Program) || p.Program[p.Segment].Repeat == 1 {
		return nil
	}
	return &p.Program[p.Segment]
}

// Partner returns the action after the rank's next action in the same repeat, which is the second
// action of a joined pair. It returns 0 at the end of a body.
func (p *Cursor) Partner() schedule.Action {
	if p.Index+1 == len(p.body) {
		return 0
	}
	return p.body[p.Index+1].Shift(p.shift)
}

// State adds the position of the rank to s, with the repeat as the only moving number. It returns false if
// the states differ.
func (p *Cursor) State(s *repeats.State) bool {
	return s.Fixed(int64(p.Segment)) && s.Fixed(int64(p.innerSegment)) && s.Fixed(int64(p.innerRepeat)) && s.Fixed(int64(p.Index)) && s.Moving(int64(p.Repeat))
}
