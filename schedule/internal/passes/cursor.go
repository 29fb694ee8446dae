package passes

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// Cursor is where a rank is in its program.
type Cursor struct {
	Program  []schedule.Segment
	Segment  int
	Repeat   int
	Position int64

	// In a loop of loops the inner segment, and its repeat.
	Inner, Again int
	Index        int // in the body
}

// at returns the segment whose body the rank is in, and what its repeats add to the
// microbatches.
func (p *Cursor) at() (s *schedule.Segment, shift int) {
	s = &p.Program[p.Segment]
	shift = p.Repeat * s.Stride
	if s.Inner != nil {
		s = &s.Inner[p.Inner]
		shift += p.Again * s.Stride
	}
	return s, shift
}

// Action returns the rank's next action; false at the end.
func (p *Cursor) Action() (schedule.Action, bool) {
	if p.Segment == len(p.Program) {
		return 0, false
	}
	s, shift := p.at()
	a := s.Body[p.Index]
	if shift != 0 {
		a = a.Shift(shift)
	}
	return a, true
}

func (p *Cursor) Advance() {
	s := &p.Program[p.Segment]
	p.Position++
	if s.Inner != nil {
		in := &s.Inner[p.Inner]
		if p.Index++; p.Index < len(in.Body) {
			return
		}
		p.Index = 0
		if p.Again++; p.Again < in.Repeat {
			return
		}
		p.Again = 0
		if p.Inner++; p.Inner < len(s.Inner) {
			return
		}
		p.Inner = 0
	} else if p.Index++; p.Index < len(s.Body) {
		return
	}
	p.Index = 0
	if p.Repeat++; p.Repeat < s.Repeat {
		return
	}
	p.Repeat, p.Segment = 0, p.Segment+1
}

// Starts reports whether the rank is at the beginning of a repeat.
func (p *Cursor) Starts() bool { return p.Index == 0 && p.Again == 0 && p.Inner == 0 }

// repeating returns the segment in which the rank is, nil if it has no repeats.
func (p *Cursor) repeating() *schedule.Segment {
	if p.Segment == len(p.Program) || p.Program[p.Segment].Repeat == 1 {
		return nil
	}
	return &p.Program[p.Segment]
}

// length returns the number of actions of a repeat of the segment in which the rank is.
func (p *Cursor) length() int64 {
	if p.Segment == len(p.Program) {
		return 0
	}
	return p.Program[p.Segment].Len()
}

// Partner returns the action behind the rank's next one, in the same repeat: the other
// one of a joined pair. It is the zero action at the end of a body.
func (p *Cursor) Partner() schedule.Action {
	s, shift := p.at()
	if p.Index+1 == len(s.Body) {
		return 0
	}
	return s.Body[p.Index+1].Shift(shift)
}

// state tells where the rank is.
func (p *Cursor) state(s *repeats.State) bool {
	return s.Fixed(int64(p.Segment)) && s.Fixed(int64(p.Inner)) && s.Fixed(int64(p.Again)) && s.Fixed(int64(p.Index)) && s.Moving(int64(p.Repeat))
}
