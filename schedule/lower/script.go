package lower

import "github.com/weir-ml/weir/schedule"

// script is the program of a rank as it is written, action by action. The actions of a period can
// be repeated. Append writes an action before the last computations, and write after them.
type script struct {
	schedule.Builder
	list []schedule.Action // the last computations, and the actions after them
	mark int64             // the length of the program when the period began
}

func (s *script) write(a schedule.Action) { s.list = append(s.list, a) }

// compute writes computations that run together.
func (s *script) compute(group ...schedule.Action) {
	s.settle()
	s.list = append(s.list, group...)
}

// settle writes the list to the program: no action comes before these computations any more.
func (s *script) settle() {
	for _, a := range s.list {
		s.Append(a)
	}
	s.list = s.list[:0]
}

// begin begins a period, before the last computations if these have not ended.
func (s *script) begin(busy bool) {
	if !busy {
		s.settle()
	}
	s.mark = s.Len()
}

// repeat writes the actions of the period n more times, each moved by the stride. The rank's current
// computations come after all of them.
func (s *script) repeat(n, stride int, busy bool) {
	if !busy {
		s.settle()
	}
	s.Repeat(s.mark, n, stride)
	for i, a := range s.list {
		s.list[i] = a.Shift(n * stride)
	}
}
