package passes

import (
	"math"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A Machine contains the ranks of a plan, each at the next action of its program. Its policies are
// RoundRobin and Clock.
type Machine struct {
	Sets     *repeats.Sets // of the visitor
	Ranks    []Cursor
	Periodic bool // a segment has more than fewRepeats repeats

	outline      *Outline
	engine       repeats.Engine
	periodStarts []int64 // by rank: the rank's position when the period began
	directions   []int8  // by rank: the sign of its segment's stride, or 0 if the rank is not expected to advance in the period
}

// fewRepeats is the number of repeats of a segment up to which periods do not save time.
const fewRepeats = 3

// newMachine returns a machine with all ranks at the first actions of their programs, and with the given
// number of sets and limit of work.
func newMachine(o *Outline, programs [][]schedule.Segment, sets int, workLimit int64) Machine {
	ranks := len(programs)
	m := Machine{Sets: repeats.NewSets(sets, workLimit), Ranks: make([]Cursor, ranks), outline: o, periodStarts: make([]int64, ranks), directions: make([]int8, ranks)}
	m.engine = repeats.NewEngine(m.Sets)
	for rank, program := range programs {
		m.Ranks[rank] = NewCursor(program, 0)
		m.periodStarts[rank] = -1
		for _, s := range program {
			m.Periodic = m.Periodic || s.Repeat > fewRepeats
		}
	}
	return m
}

// Done reports whether every rank has reached the end of its program.
func (m *Machine) Done() bool {
	for rank := range m.Ranks {
		if m.Ranks[rank].body != nil {
			return false
		}
	}
	return true
}

// beginPeriod records the positions of all ranks. A rank is expected to advance in the period if
// its segment repeats and it has advanced since the last period began.
func (m *Machine) beginPeriod() {
	for rank := range m.Ranks {
		p := &m.Ranks[rank]
		m.directions[rank] = 0
		if s := p.repeating(); s != nil && p.Position != m.periodStarts[rank] {
			m.directions[rank] = sign(s.Stride)
		}
		m.periodStarts[rank] = p.Position
	}
}

// state adds the positions of all ranks, with one moving number for each rank.
func (m *Machine) state(s *repeats.State) bool {
	for rank := range m.Ranks {
		if !m.Ranks[rank].State(s) {
			return false
		}
	}
	return true
}

// moved returns the number of microbatches by which the ranks have advanced in the period, and the
// number of further periods after which each rank is still in its segment. The first deltas are the
// numbers of repeats by which the ranks have advanced. moved returns a shift of 0 if no rank has
// advanced, if two ranks have advanced by different numbers of microbatches, or if a rank has advanced and
// was not expected to, or the other way around: the operations of the rank were then recorded with the
// wrong direction.
func (m *Machine) moved(deltas []int64) (shift, limit int64) {
	limit = math.MaxInt64
	for rank := range m.Ranks {
		p, repeats := &m.Ranks[rank], deltas[rank]
		if (repeats == 0) != (m.directions[rank] == 0) {
			return 0, 0
		}
		if repeats == 0 {
			continue
		}
		s := &p.Program[p.Segment]
		if n := repeats * absStride(s); shift == 0 {
			shift = n
		} else if shift != n {
			return 0, 0
		}
		limit = min(limit, int64(s.Repeat-1-p.Repeat)/repeats)
	}
	return shift, limit
}

// skip advances the ranks by n periods.
func (m *Machine) skip(n int64, deltas []int64) {
	for rank := range m.Ranks {
		m.Ranks[rank].Skip(int(n * deltas[rank]))
	}
}

// LeastMultiple returns the least common multiple of two positive numbers.
func LeastMultiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
