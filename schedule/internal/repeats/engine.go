package repeats

// A Machine has periods that an Engine can skip.
type Machine interface {
	// State enters everything that decides how the machine goes on, except its sets. It may
	// return as soon as Fixed or Moving has returned false.
	State(s *State)
	// Moves receives the deltas of the moving numbers over a period. It returns by how many
	// microbatches the period moves and how many more periods the machine can go through, or 0
	// if the period does not recur.
	Moves(by []int64) (shift, most int64)
	// Skip moves the machine on by n periods.
	Skip(n int64, by []int64)
}

// State is the configuration of a machine, as numbers.
type State struct {
	fixed, moving []int64
	by            []int64 // the deltas of the moving numbers from those of the other state
	than          *State  // the state that it is compared with; nil if it is kept
	k             int     // the fixed numbers that are equal
	differs       bool
}

// Fixed enters a number that is the same in every period, Moving one that may move by the same
// amount from each to the next. Both return false if the two states differ.
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

// Unclear says that the state is unknown: it equals no other one.
func (s *State) Unclear() { s.differs = true }

// same reports whether the two states are alike.
func (s *State) same() bool {
	return !s.differs && s.k == len(s.than.fixed) && len(s.by) == len(s.than.moving)
}

// Engine skips periods of a machine, whose sets it has.
type Engine struct {
	Sets
	past, now State
	age       int // moments since the period began
	limit     int // the age at which another period is begun
	first     int // the first limit
}

// NewEngine returns an engine for a machine with this many sets, all empty, that runs at most
// this many actions.
func NewEngine(sets int, most int64) Engine {
	return Engine{Sets: NewSets(sets, most), first: firstLimit}
}

// Expect says that the shortest period may have this many moments.
func (e *Engine) Expect(moments int) { e.first = min(max(e.first, moments), lastLimit) }

// The moments among which Look looks for the end of a period.
const firstLimit, lastLimit = 16, 1 << 14

// Look is called at each moment at which a period may begin or end. If a period ends now it skips
// those that are like it, and returns how many.
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

// Forget gives up the current period: the next Look begins another one.
func (e *Engine) Forget() {
	e.Stop()
	e.limit = 0
}

// Began reports whether a period has begun at the moment of the last Look.
func (e *Engine) Began() bool { return e.age == 0 }

func (e *Engine) watch(m Machine, limit int) {
	e.Begin(m)
	e.age, e.limit = 0, limit
}

// Begin begins a period. End ends it if the state has recurred, skips those that are like it, and
// returns how many; it returns 0 if the period may go on.
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

// Stop gives up all periods that have begun.
func (e *Engine) Stop() {
	for e.depth > 0 {
		e.end(0, 0)
	}
}
