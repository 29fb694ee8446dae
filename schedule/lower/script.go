package lower

import "github.com/weir-ml/weir/schedule"

// script builds the program of a rank action by action, and can repeat the actions of a period.
// Append inserts an action before the last computations; write appends an action after them.
type script struct {
	schedule.Builder
	list []schedule.Action // the last computations, and the actions after them
	mark int64             // the length of the program when the period began
}

func (s *script) write(a schedule.Action) { s.list = append(s.list, a) }

// compute writes a computation or a joined pair.
func (s *script) compute(group ...schedule.Action) {
	s.flush()
	s.list = append(s.list, group...)
}

// flush moves the list to the program, so that Append inserts later actions after it.
func (s *script) flush() {
	for _, a := range s.list {
		s.Append(a)
	}
	s.list = s.list[:0]
}

// begin marks the beginning of a period. If the rank is busy with its last computations, the period
// begins before them.
func (s *script) begin(busy bool) {
	if !busy {
		s.flush()
	}
	s.mark = s.Len()
}

// repeat writes the actions of the period n more times, shifted by stride microbatches each time.
// The rank's current computations come after all repeats.
func (s *script) repeat(n, stride int, busy bool) {
	if !busy {
		s.flush()
	}
	s.Repeat(s.mark, n, stride)
	for i, a := range s.list {
		s.list[i] = a.Shift(n * stride)
	}
}
