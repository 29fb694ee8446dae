package repeats

// A Machine has periods that an Engine can skip.
type Machine interface {
	// State adds all values that determine the continuation of the machine, except its sets, by
	// calls of s.Fixed and s.Moving. It may return as soon as one of them returns false.
	State(s *State)
	// Moves receives the deltas of the moving numbers over a period. It returns the number of
	// microbatches by which the period advances, and the maximum number of further periods, or 0 if
	// the period does not recur.
	Moves(by []int64) (shift, most int64)
	// Skip advances the machine by n periods.
	Skip(n int64, by []int64)
}

// State is the configuration of a machine as a list of numbers.
type State struct {
	fixed, moving []int64
	by            []int64 // the deltas of the moving numbers from the other state
	than          *State  // the state with which this state is compared; nil if this state is stored
	k             int     // the number of equal fixed numbers so far
	differs       bool
}

// Fixed adds a number that is the same in every period. Moving adds a number that may change by a
// constant from each period to the next. Both return false if the two states differ.
func (s *State) Fixed(v int64) bool {
	if s.than == nil {
		s.fixed = append(s.fixed, v)
		return true
	}
	if s.k == len(s.than.fixed) || s.than.fixed[s.k] != v {
		s.differs = true
		return false
	}
	s.k++
	return true
}

func (s *State) Moving(v int64) bool {
	if s.than == nil {
		s.moving = append(s.moving, v)
		return true
	}
	if s.differs || len(s.by) == len(s.than.moving) {
		s.differs = true
		return false
	}
	s.by = append(s.by, v-s.than.moving[len(s.by)])
	return true
}

// Unclear marks the state as unknown, so that it does not equal any other state.
func (s *State) Unclear() { s.differs = true }

// same reports whether the two states are equal up to the deltas of moving numbers.
func (s *State) same() bool {
	return !s.differs && s.k == len(s.than.fixed) && len(s.by) == len(s.than.moving)
}

// Engine holds the sets of a machine and skips its periods.
type Engine struct {
	Sets
	past, now State
	age       int // the number of calls of Look since the period began
	limit     int // the age at which a new period begins
	first     int // the limit of the first period
}

// NewEngine returns an engine for a machine with the given number of empty sets, that runs at most
// most actions.
func NewEngine(sets int, most int64) Engine {
	return Engine{Sets: NewSets(sets, most), first: firstLimit}
}

// Expect sets the expected length of the shortest period, in calls of Look.
func (e *Engine) Expect(moments int) { e.first = min(max(e.first, moments), lastLimit) }

// The smallest and largest limit of calls of Look within which a period must end.
const firstLimit, lastLimit = 16, 1 << 14

// Look is called whenever a period may begin or end. If a period ends now, Look skips the periods
// that repeat it and returns their number.
func (e *Engine) Look(m Machine) int64 {
	if e.age++; e.limit == 0 {
		e.watch(m, e.first)
		return 0
	}
	if n := e.End(m); n > 0 {
		e.watch(m, e.first)
		return n
	}
	if e.age == e.limit {
		e.Stop()
		e.watch(m, min(2*e.limit, lastLimit))
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

func (e *Engine) watch(m Machine, limit int) {
	e.Begin(m)
	e.age, e.limit = 0, limit
}

// Begin begins a period. If the state has recurred, End ends the period, skips the periods that
// repeat it, and returns their number. Otherwise End returns 0 and the period continues.
func (e *Engine) Begin(m Machine) {
	e.Sets.Begin(0)
	e.past.fixed, e.past.moving = e.past.fixed[:0], e.past.moving[:0]
	m.State(&e.past)
}

func (e *Engine) End(m Machine) int64 {
	e.now = State{than: &e.past, by: e.now.by[:0]}
	if m.State(&e.now); !e.now.same() {
		return 0
	}
	shift, most := m.Moves(e.now.by)
	n := e.fit(shift, most)
	if n > 0 {
		e.end(n, shift)
		m.Skip(n, e.now.by)
	}
	return n
}

// Stop discards all periods that have begun.
func (e *Engine) Stop() {
	for e.depth > 0 {
		e.end(0, 0)
	}
}
