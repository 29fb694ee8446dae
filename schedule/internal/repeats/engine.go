package repeats

// A Machine is a computation whose repeated periods an Engine can skip.
type Machine interface {
	// State passes all values that determine the rest of the run, except the sets, to s.Fixed (if they
	// must be the same after a period) or to s.Moving. It may return as soon as one of them returns false.
	State(s *State)
	// Moves receives the deltas of the moving numbers over a period, in the order of State. It returns
	// the number of microbatches by which the period advances, and the number of further periods that
	// the machine allows to be skipped. Both are 0 if the period does not recur.
	Moves(deltas []int64) (shift, limit int64)
	// Skip advances the moving numbers by n times their deltas.
	Skip(n int64, deltas []int64)
}

// State is the state of a machine as two lists of numbers. A State either stores the numbers, or
// compares them with a stored State while they are added.
type State struct {
	fixed, moving []int64
	deltas        []int64 // of the moving numbers, relative to the reference
	reference     *State  // the stored state; nil if this state is stored
	matched       int     // the number of fixed numbers compared so far
	differs       bool
}

// Fixed adds a number that must be the same at the end of a period. It returns false if the states
// differ.
func (s *State) Fixed(v int64) bool {
	if s.reference == nil {
		s.fixed = append(s.fixed, v)
		return true
	}
	if s.matched == len(s.reference.fixed) || s.reference.fixed[s.matched] != v {
		s.differs = true
		return false
	}
	s.matched++
	return true
}

// Moving adds a number that may be different at the end of a period. Its delta is the difference. It
// returns false if the states differ.
func (s *State) Moving(v int64) bool {
	if s.reference == nil {
		s.moving = append(s.moving, v)
		return true
	}
	if s.differs || len(s.deltas) == len(s.reference.moving) {
		s.differs = true
		return false
	}
	s.deltas = append(s.deltas, v-s.reference.moving[len(s.deltas)])
	return true
}

// Unclear marks the state as incomplete, so that it equals no other state.
func (s *State) Unclear() { s.differs = true }

// same reports whether the two states are equal up to the deltas of moving numbers.
func (s *State) same() bool {
	return !s.differs && s.matched == len(s.reference.fixed) && len(s.deltas) == len(s.reference.moving)
}

// Engine skips the periods of a machine.
type Engine struct {
	sets           *Sets
	start, current State
	age            int // the number of calls of Look since the period began
	limit          int // the age at which a new period begins
	minLimit       int // the limit of the first period
}

// NewEngine returns the engine of a machine with the given sets of microbatches.
func NewEngine(sets *Sets) Engine { return Engine{sets: sets, minLimit: firstLimit} }

// Expect tells the engine that a period takes at least the given number of calls of Look.
func (e *Engine) Expect(calls int) { e.minLimit = min(max(e.minLimit, calls), lastLimit) }

// The smallest and largest limits on the calls of Look within which a period must end.
const firstLimit, lastLimit = 16, 1 << 14

// Look must be called at every point of the run at which a period may begin or end. If the state has
// recurred since the beginning of the current period, Look skips the periods that repeat this period and
// returns their number. If the state does not recur within a number of calls, Look begins a new
// period and doubles that number, up to a maximum, to find longer periods.
func (e *Engine) Look(m Machine) int64 {
	if e.age++; e.limit == 0 {
		e.beginPeriod(m, e.minLimit)
		return 0
	}
	if n := e.End(m); n > 0 {
		e.beginPeriod(m, e.minLimit)
		return n
	}
	if e.age == e.limit {
		e.Stop()
		e.beginPeriod(m, min(2*e.limit, lastLimit))
	}
	return 0
}

// Forget discards the current period. The next Look begins a new one.
func (e *Engine) Forget() {
	e.Stop()
	e.limit = 0
}

// Began reports whether the last call of Look began a period.
func (e *Engine) Began() bool { return e.age == 0 }

func (e *Engine) beginPeriod(m Machine, limit int) {
	e.Begin(m)
	e.age, e.limit = 0, limit
}

// Begin begins a period.
func (e *Engine) Begin(m Machine) {
	e.sets.Begin(0)
	e.start.fixed, e.start.moving = e.start.fixed[:0], e.start.moving[:0]
	m.State(&e.start)
}

// End skips the periods that repeat the current one and returns their number, if the state has recurred. If it
// skips any, the period ends. Otherwise End returns 0 and the period continues.
func (e *Engine) End(m Machine) int64 {
	e.current = State{reference: &e.start, deltas: e.current.deltas[:0]}
	if m.State(&e.current); !e.current.same() {
		return 0
	}
	shift, limit := m.Moves(e.current.deltas)
	n := e.sets.recurrences(shift, limit)
	if n > 0 {
		e.sets.endPeriod(n, shift)
		m.Skip(n, e.current.deltas)
	}
	return n
}

// Stop discards all periods that have begun.
func (e *Engine) Stop() {
	for e.sets.depth > 0 {
		e.sets.endPeriod(0, 0)
	}
}
