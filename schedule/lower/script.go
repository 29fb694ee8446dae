package lower

import "github.com/weir-ml/weir/schedule"

// script is what a rank is to do, written action by action. What was written in a
// period can be repeated.
type script struct {
	schedule.Builder
	list []schedule.Action // the last computations, and what comes behind them
	mark int64             // where the period begins
}

func (s *script) write(a schedule.Action) { s.list = append(s.list, a) }

// compute writes computations that run together.
func (s *script) compute(group ...schedule.Action) {
	s.settle()
	s.list = append(s.list, group...)
}

// before writes an action before the last computations.
func (s *script) before(a schedule.Action) { s.Append(a) }

// settle writes the list to the program: nothing comes before the last computations
// any more.
func (s *script) settle() {
	for _, a := range s.list {
		s.Append(a)
	}
	s.list = s.list[:0]
}

// begin begins a period, before the last computations if the rank is still at them.
func (s *script) begin(busy bool) {
	if !busy {
		s.settle()
	}
	s.mark = s.Len()
}

// repeat writes what was written in the period n more times, each moved on by the
// stride. The computations that the rank is at come behind all of them.
func (s *script) repeat(n, stride int, busy bool) {
	if !busy {
		s.settle()
	}
	s.Repeat(s.mark, n, stride)
	for i, a := range s.list {
		s.list[i] = a.Shift(n * stride)
	}
}

// end returns the program.
func (s *script) end() []schedule.Segment {
	s.settle()
	return s.Program()
}
