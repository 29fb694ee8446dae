package passes

import (
	"math"

	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A Machine is the ranks of a plan, each at some action of its program. RoundRobin and Clock
// say which rank is next; their visitor says whether the next action can run, and does it.
type Machine struct {
	repeats.Engine
	*Outline
	Ranks    []Cursor
	Periodic bool // a segment has more than a few repeats

	began []int64 // by rank: its position when the period began
	moves []int8  // by rank: the direction in which its microbatches move in the period
}

// fewRepeats are not worth a period.
const fewRepeats = 3

// newMachine returns a machine with all ranks at their first actions, for a visitor that keeps
// this many sets. It runs so many actions at most.
func newMachine(o *Outline, sets int, most int64) Machine {
	ranks := len(o.Plan.Programs)
	m := Machine{Engine: repeats.NewEngine(sets, most), Outline: o, Ranks: make([]Cursor, ranks), began: make([]int64, ranks), moves: make([]int8, ranks)}
	for rank, program := range o.Plan.Programs {
		m.Ranks[rank] = NewCursor(program, 0)
		m.began[rank] = -1
		for _, s := range program {
			m.Periodic = m.Periodic || s.Repeat > fewRepeats
		}
	}
	return m
}

// Done reports whether every rank has come to the end of its program.
func (m *Machine) Done() bool {
	for rank := range m.Ranks {
		if m.Ranks[rank].body != nil {
			return false
		}
	}
	return true
}

// beginPeriod notes where all ranks are. A rank is expected to move in the period if its
// segment repeats and it has moved since the last period began.
func (m *Machine) beginPeriod() {
	for rank := range m.Ranks {
		p := &m.Ranks[rank]
		m.moves[rank] = 0
		if s := p.repeating(); s != nil && p.Position != m.began[rank] {
			m.moves[rank] = sign(s.Stride)
		}
		m.began[rank] = p.Position
	}
}

// state enters the positions of all ranks: one moving number for each.
func (m *Machine) state(s *repeats.State) bool {
	for rank := range m.Ranks {
		if !m.Ranks[rank].State(s) {
			return false
		}
	}
	return true
}

// moved returns by how many microbatches the ranks have moved in the period, and how many
// more periods leave each of them in its segment. It returns 0 if a rank has not moved as it
// was expected to, or two ranks have moved by different numbers of microbatches.
func (m *Machine) moved(by []int64) (shift, most int64) {
	most = math.MaxInt64
	for rank := range m.Ranks {
		p, repeats := &m.Ranks[rank], by[rank]
		if (repeats == 0) != (m.moves[rank] == 0) {
			return 0, 0
		}
		if repeats == 0 {
			continue
		}
		s := &p.Program[p.Segment]
		if n := repeats * pace(s); shift == 0 {
			shift = n
		} else if shift != n {
			return 0, 0
		}
		most = min(most, int64(s.Repeat-1-p.Repeat)/repeats)
	}
	return shift, most
}

// skip moves the ranks by n periods.
func (m *Machine) skip(n int64, by []int64) {
	for rank := range m.Ranks {
		m.Ranks[rank].Skip(int(n * by[rank]))
	}
}

// LeastMultiple returns the least common multiple of two numbers above 0.
func LeastMultiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
