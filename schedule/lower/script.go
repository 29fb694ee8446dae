package lower

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// script is what a rank is to do, written action by action. What was written in a
// period can be repeated.
type script struct {
	program []schedule.Segment
	list    []schedule.Action // in no segment yet
	open    int               // in list: where the last computations begin
	mark    int               // in list: where the period begins
}

func (s *script) write(a schedule.Action) { s.list = append(s.list, a) }

// compute writes computations that run together.
func (s *script) compute(group ...schedule.Action) {
	s.open = len(s.list)
	s.list = append(s.list, group...)
}

// before writes an action before the last computations.
func (s *script) before(a schedule.Action) {
	s.list = slices.Insert(s.list, s.open, a)
	s.open++
}

// here returns where the next thing is written: before the last computations, if the
// rank is still at them.
func (s *script) here(busy bool) int {
	if busy {
		return s.open
	}
	return len(s.list)
}

// begin begins a period.
func (s *script) begin(busy bool) { s.mark = s.here(busy) }

// repeat writes what was written in the period n more times, each moved on by the
// stride. The computations that the rank is at come behind all of them.
func (s *script) repeat(n, stride int, busy bool) {
	end := s.here(busy)
	if s.mark == end {
		return
	}
	s.cut(s.mark)
	end -= s.mark
	s.program = append(s.program, schedule.Segment{Body: s.list[:end:end], Repeat: n + 1, Stride: stride})
	s.list, s.open, s.mark = s.list[end:], 0, 0
	for i, a := range s.list {
		s.list[i] = a.Shift(n * stride)
	}
}

// times writes an action n times, each moved on by the stride.
func (s *script) times(a schedule.Action, n, stride int) {
	if n < 4 {
		for i := range n {
			s.write(a.Shift(i * stride))
		}
		return
	}
	s.cut(len(s.list))
	s.program = append(s.program, schedule.Segment{Body: []schedule.Action{a}, Repeat: n, Stride: stride})
}

// cut makes a segment of the first n actions of the list.
func (s *script) cut(n int) {
	if n > 0 {
		s.program = append(s.program, schedule.Segment{Body: s.list[:n:n], Repeat: 1})
	}
	s.list = s.list[n:]
}

// end returns the program.
func (s *script) end() []schedule.Segment {
	s.cut(len(s.list))
	return s.program
}
