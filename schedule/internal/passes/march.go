package passes

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A March lets all ranks of a plan go on together: round after round, each rank in
// its turn runs its next actions if it can. What a rank can do never depends on how
// far the others have gone beyond what it needs, so one march decides for every
// timing.
//
// It skips repeats (package repeats). A period of it is a lap: every rank that stands in a
// segment that repeats runs as many repeats of it as move its microbatches by a stride
// common to all, and then waits for the others. Where ranks that go round in circles like
// that do not block each other for ever, each of them can finish its lap, wherever in its
// body it stands: if some could not, each of these would wait for another one that has not
// done yet what it does in the lap, round a circle, and no later lap would get them
// out of it. So a lap from any place comes back to that place moved on, and no
// steady state need be waited for.
type March struct {
	repeats.Engine
	*Outline
	Ranks   []Cursor
	Counts  []int64 // compared with Limit, by Room
	Limit   int64
	Visited int64 // actions

	repeating bool    // a program has a segment that repeats
	due       int64   // the work at which the next lap is tried
	down      bool    // the direction of the next round
	laps      []int64 // by rank: the actions of a lap
	stops     []int64 // by rank: the position at which it stops now
	stride    int64   // microbatches of a lap
	moves     []int8  // by rank: in which direction it is taken to move in a lap
	stood     []int64 // by rank: the position at which it did not go on in the last lap, -1 where it did
	lap       bool    // one is run
	deferred  int64   // work since the last lap for which the next one was put off
	unsteady  bool    // a rank has come to another segment in this round
	room      []int64 // by count: how much more would change what Room says in a lap
	apart     int64   // by how many microbatches ranks miss each other that do not move alike
}

// marcher is what a march calls.
type marcher interface {
	// Step runs the action if the rank can run it now, and reports whether it could. What
	// it asks, it asks the march: its sets, Stands and Room.
	Step(rank int, a schedule.Action, mb int64) bool
}

const (
	// burst is how many actions a rank runs in its turn at most.
	burst = 64
	// pause is how many actions are run before the next lap is tried where there cannot be one.
	pause = 1 << 10
)

// NewMarch returns a march of the plan's ranks over so many empty sets and counts of 0.
func NewMarch(o *Outline, sets, counts int) March {
	ranks := len(o.Plan.Programs)
	m := March{Engine: repeats.NewEngine(sets, o.Allowance), Outline: o, Ranks: make([]Cursor, ranks), Counts: make([]int64, counts), room: make([]int64, counts),
		laps: make([]int64, ranks), stops: make([]int64, ranks), moves: make([]int8, ranks), stood: slices.Repeat([]int64{-1}, ranks)}
	for rank, program := range o.Plan.Programs {
		m.Ranks[rank] = NewCursor(program, 0)
		for _, s := range program {
			m.repeating = m.repeating || s.Repeat > 3
		}
	}
	m.open()
	return m
}

// Run marches until no rank can go on: to the end of all programs, unless ranks
// block each other or the limit of work is reached.
func (m *March) Run(v marcher) {
	for !m.Exhausted {
		if m.repeating && !m.unsteady && m.Work() >= m.due {
			m.runLap(v)
		}
		m.unsteady = false
		if !m.round(v) {
			return
		}
	}
}

// Over reports whether every rank has come to its end.
func (m *March) Over() bool {
	return !slices.ContainsFunc(m.Ranks, func(p Cursor) bool { return p.Segment < len(p.Program) })
}

// round gives each rank a turn, up and down the ranks by turns, as microbatches go,
// and reports whether any of them could use it.
func (m *March) round(v marcher) bool {
	moved := false
	for i := range m.Ranks {
		rank := i
		if m.down {
			rank = len(m.Ranks) - 1 - i
		}
		if m.turn(v, rank) {
			moved = true
		}
	}
	m.down = !m.down
	return moved
}

// turn lets a rank run its next actions, and reports whether it could run any.
func (m *March) turn(v marcher, rank int) bool {
	p := &m.Ranks[rank]
	segment, begin := p.Segment, p.Position
	m.Sign = m.moves[rank]
	for end := min(begin+burst, m.stops[rank]); p.Position < end && !m.Exhausted; p.Advance() {
		a, ok := p.Action()
		if !ok {
			break
		}
		m.Spend(1)
		if !v.Step(rank, a, int64(a.Microbatch())) {
			break
		}
	}
	m.unsteady = m.unsteady || p.Segment != segment
	m.Visited += p.Position - begin
	return p.Position > begin
}

// Room reports whether a count is below the limit.
func (m *March) Room(count int) bool {
	room := m.Limit - 1 - m.Counts[count]
	if m.lap {
		m.room[count] = min(m.room[count], max(room, -1-room))
	}
	return room >= 0
}

// Stands reports whether the rank stands before this action of the rank whose turn it is,
// whatever dies with it.
func (m *March) Stands(rank int, want schedule.Action) bool {
	a, ok := m.Ranks[rank].Action()
	if !ok || a.Kind() != want.Kind() || a.Stage() != want.Stage() {
		return false
	}
	apart := int64(a.Microbatch() - want.Microbatch())
	if m.lap && m.moves[rank] != m.Sign {
		m.apart = min(m.apart, max(apart, -apart))
	}
	return apart == 0
}

// runLap runs a lap, if there can be one, and skips those that are like it.
func (m *March) runLap(v marcher) {
	began := m.Work()
	actions, short := m.measure()
	if actions == 0 || short && m.deferred < actions {
		wait := max(pause, actions/16)
		m.due, m.deferred = began+wait, m.deferred+wait
		return
	}
	m.deferred = 0
	for rank := range m.Ranks {
		p := &m.Ranks[rank]
		m.stops[rank] = p.Position + m.laps[rank]
		m.moves[rank] = 0
		if s := p.repeating(); s != nil && m.stood[rank] != p.Position {
			m.moves[rank] = sign(s.Stride)
		}
	}
	for i := range m.room {
		m.room[i] = math.MaxInt64
	}
	m.down, m.lap, m.apart = false, true, math.MaxInt64
	m.Begin(m)
	for m.round(v) {
	}
	m.due = m.Work()
	if m.End(m) == 0 {
		m.Stop()
		m.due += (m.Work() - began) / 2
	}
	for rank := range m.Ranks {
		m.stood[rank] = -1
		if at := m.Ranks[rank].Position; at == m.stops[rank]-m.laps[rank] {
			m.stood[rank] = at
		}
	}
	m.lap = false
	m.open()
}

// measure finds out what each rank does in a lap: one that does not stand in a segment
// that repeats may show that it can go on, and no more. It returns how many actions that
// is, 0 where there is no stride common to all, or nobody repeats anything, and whether a
// rank comes to the end of its segment before it could go through a second lap.
func (m *March) measure() (actions int64, short bool) {
	stride := 1
	for rank := range m.Ranks {
		if s := m.Ranks[rank].repeating(); s != nil {
			if stride = LeastMultiple(stride, int(max(pace(s), 1))); stride > schedule.MaxMicrobatches {
				return 0, false
			}
		}
	}
	for rank := range m.Ranks {
		m.laps[rank] = 1
		p := &m.Ranks[rank]
		if s := p.repeating(); s != nil {
			repeats := stride / int(max(pace(s), 1))
			m.laps[rank] = int64(repeats) * s.Len()
			actions += m.laps[rank]
			short = short || m.stood[rank] != p.Position && s.Repeat-1-p.Repeat < 2*repeats
		}
	}
	m.stride = int64(stride)
	if actions > m.Allowance>>3 {
		return 0, false
	}
	return actions, short
}

// open lets all ranks go as far as they can.
func (m *March) open() {
	for rank := range m.stops {
		m.stops[rank] = math.MaxInt64
	}
}

// State tells where all ranks are, and the counts.
func (m *March) State(s *repeats.State) {
	for rank := range m.Ranks {
		if !m.Ranks[rank].state(s) {
			return
		}
	}
	for _, n := range m.Counts {
		if !s.Moving(n) {
			return
		}
	}
}

// Moves wants every rank where it was before the lap, or there in a later repeat, and
// leaves the last repeats of a segment.
func (m *March) Moves(by []int64) (shift, most int64) {
	most = math.MaxInt64
	for rank := range m.Ranks {
		p, step := &m.Ranks[rank], by[rank]
		if (step == 0) != (m.moves[rank] == 0) {
			return 0, 0 // it was taken for another one
		}
		if step != 0 {
			s := &p.Program[p.Segment]
			if step*pace(s) != m.stride {
				return 0, 0
			}
			shift, most = m.stride, min(most, int64(s.Repeat-1-p.Repeat)/step)
		}
	}
	if shift == 0 {
		return 0, 0
	}
	most = min(most, (m.apart-1)/shift)
	for i, room := range m.room {
		if each := max(by[len(m.Ranks)+i], -by[len(m.Ranks)+i]); each > 0 {
			most = min(most, room/each)
		}
	}
	return shift, most
}

// Skip moves ranks and counts by n laps.
func (m *March) Skip(n int64, by []int64) {
	for rank := range m.Ranks {
		m.Ranks[rank].Skip(int(n * by[rank]))
	}
	for i := range m.Counts {
		m.Counts[i] += n * by[len(m.Ranks)+i]
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
