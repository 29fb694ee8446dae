package passes

import (
	"github.com/weir-ml/weir/schedule"
	"math"
)

// A march lets all ranks of a plan go on together: round after round, each rank in
// its turn runs its next actions if it can. What a rank can do never depends on how
// far the others have gone beyond what it needs, so one march decides for every
// timing.
//
// It leaps over repeats as a walk does, and by the same argument. What a walk does
// with a repeat it does with a lap: every rank that stands in a segment that repeats
// runs as many repeats of it as move its microbatches by a stride common to all, and
// then waits for the others. Where ranks that go round in circles like that do not
// block each other for ever, each of them can finish its lap, wherever in its body it
// stands: if some could not, each of these would wait for another one that has not
// done yet what it does in the lap, round a circle, and no later lap would get them
// out of it. So a lap from any place comes back to that place moved on, and no
// steady state need be waited for.
type March struct {
	Walk
	*Outline
	Ranks  []Cursor
	Counts []int64 // numbers in the visitor's own meaning; it compares them by less

	repeating  bool    // a program has a segment that repeats
	due        int64   // the work at which the next lap is tried
	down       bool    // the direction of the next round
	laps       []int64 // by rank: the actions of a lap
	stops      []int64 // by rank: the position at which it stops now
	steps      []int   // by rank: the repeats of a lap; 0 where it stands still
	lap, spare lineup
	drift      []int64 // by count: how far it moves in a lap
}

// marcher is what a march calls.
type marcher interface {
	// step runs the action if the rank can run it now, and reports whether it could. What
	// it asks, it asks the march: its sets, stands and less. While march.trial is set it
	// changes sets and counts only.
	Step(rank int, a schedule.Action, mb int64) bool
}

// lineup is where everything in a march is, but for the sets.
type lineup struct {
	ranks  []Cursor
	counts []int64
}

const (
	// burst is how many actions a rank runs in its turn at most.
	burst = 64
	// maxLap is the most actions that a lap may have, and pause how many are run before
	// the next attempt where there cannot be one.
	maxLap, pause = 1 << 20, 1 << 10
)

// newMarch returns a march of the plan's ranks over so many empty sets and counts of 0.
func NewMarch(o *Outline, sets, counts int) March {
	ranks := len(o.Plan.Programs)
	m := March{Walk: NewWalk(sets), Outline: o, Ranks: make([]Cursor, ranks), Counts: make([]int64, counts),
		laps: make([]int64, ranks), stops: make([]int64, ranks), steps: make([]int, ranks), drift: make([]int64, counts)}
	for rank, program := range o.Plan.Programs {
		m.Ranks[rank].Program = program
		for _, s := range program {
			m.repeating = m.repeating || s.Repeat > 3
		}
	}
	m.open()
	return m
}

// run marches until no rank can go on: to the end of all programs, unless ranks
// block each other or the limit of work is reached.
func (m *March) Run(v marcher) {
	for !m.Exhausted {
		if m.repeating && m.work >= m.due {
			m.goRound(v)
		}
		if !m.round(v) {
			return
		}
	}
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
	p, begin := &m.Ranks[rank], m.Ranks[rank].Position
	for end := min(begin+burst, m.stops[rank]); p.Position < end && !m.Exhausted; p.Advance() {
		a, ok := p.Action()
		if !ok {
			break
		}
		if m.work++; m.work > MaxWork || m.held > maxHeld {
			m.Exhausted = true
		}
		if !v.Step(rank, a, int64(a.Microbatch())) {
			break
		}
	}
	if !m.Trial {
		m.Visited += p.Position - begin
	}
	return p.Position > begin
}

// less reports whether a number is less than another one.
func (m *March) Less(a, b int64) bool { return m.Note(a < b) }

// stands reports whether the rank stands before this action, whatever dies with it.
func (m *March) Stands(rank int, want schedule.Action) bool {
	a, ok := m.Ranks[rank].Action()
	if !m.Note(ok && a.Kind() == want.Kind() && a.Stage() == want.Stage()) {
		return false
	}
	below := m.Less(int64(a.Microbatch()), int64(want.Microbatch()))
	return !below && !m.Less(int64(want.Microbatch()), int64(a.Microbatch()))
}

// goRound runs a lap, and leaps over those that are like it.
func (m *March) goRound(v marcher) {
	began := m.work
	if !m.measure() {
		m.due = began + pause
		return
	}
	m.keep(&m.lap)
	m.record(&m.last)
	m.runLap(v)
	if m.due = m.work; !m.leap(v) {
		m.due += 2 * (m.work - began)
	}
}

// measure finds out what each rank does in a lap: one that does not stand in a segment
// that repeats may show that it can go on, and no more. It reports false where there
// is no stride common to all, or nobody repeats anything.
func (m *March) measure() bool {
	stride := 1
	for rank := range m.Ranks {
		if s := m.Ranks[rank].repeating(); s != nil {
			if stride = LeastMultiple(stride, pace(s)); stride > schedule.MaxMicrobatches {
				return false
			}
		}
	}
	actions := int64(0)
	for rank := range m.Ranks {
		m.laps[rank] = 1
		if s := m.Ranks[rank].repeating(); s != nil {
			m.laps[rank] = int64(stride/pace(s)) * int64(len(s.Body))
			actions += m.laps[rank]
		}
	}
	return actions > 0 && actions <= maxLap
}

// pace returns by how many microbatches a repeat moves on, 1 if it does not.
func pace(s *schedule.Segment) int { return max(s.Stride, -s.Stride, 1) }

// runLap lets every rank go as far as it can, and no further than its lap.
func (m *March) runLap(v marcher) {
	for rank := range m.Ranks {
		m.stops[rank] = m.Ranks[rank].Position + m.laps[rank]
	}
	m.down = false
	for m.round(v) {
	}
	m.Log = nil
	m.open()
}

// open lets all ranks go as far as they can.
func (m *March) open() {
	for rank := range m.stops {
		m.stops[rank] = math.MaxInt64
	}
}

// leap moves everything from behind a lap to before a later one that is like it, and
// so are all between. It reports false where not every rank has come round, or where
// nothing can be said of later laps.
func (m *March) leap(v marcher) bool {
	n := m.cameRound()
	if n < 1 || !m.slopes() {
		return false
	}
	for i, now := range m.Counts {
		m.drift[i] = now - m.lap.counts[i]
	}
	m.trace, m.past = m.past, m.trace
	for ; n > 0 && !m.Exhausted; n /= 2 {
		if !m.move(n) {
			continue
		}
		m.shift(n)
		if m.try(v) {
			return true
		}
		m.shift(-n)
		m.move(-n)
	}
	return false
}

// cameRound returns over how many laps one could leap now: less than 1 unless every
// rank is where it was before the lap, or there in a later repeat.
func (m *March) cameRound() int64 {
	most, moved := int64(math.MaxInt64), false
	for rank := range m.Ranks {
		now, then := &m.Ranks[rank], &m.lap.ranks[rank]
		if now.Segment != then.Segment || now.Index != then.Index {
			return 0
		}
		step := now.Repeat - then.Repeat
		if m.steps[rank] = step; step != 0 {
			left := now.Program[now.Segment].Repeat - 1 - now.Repeat
			most, moved = min(most, int64(left/step)-1), true
		}
	}
	if !moved {
		return 0
	}
	return most
}

// shift moves ranks and counts by n laps.
func (m *March) shift(n int64) {
	for rank, step := range m.steps {
		p := &m.Ranks[rank]
		p.Repeat += int(n) * step
		p.Position += n * int64(step*p.body())
	}
	for i, drift := range m.drift {
		m.Counts[i] += n * drift
	}
}

// try runs a lap and undoes it, and reports whether it was like the one before.
func (m *March) try(v marcher) bool {
	m.keep(&m.spare)
	m.record(&m.next)
	m.Trial = true
	m.runLap(v)
	m.Trial = false
	same := m.alike() // and the counts have moved as far then
	m.restore(&m.next)
	m.resume(&m.spare)
	return same
}

// keep notes where everything but the sets is, and resume goes back to it.
func (m *March) keep(f *lineup) {
	f.ranks, f.counts = append(f.ranks[:0], m.Ranks...), append(f.counts[:0], m.Counts...)
}

func (m *March) resume(f *lineup) {
	copy(m.Ranks, f.ranks)
	copy(m.Counts, f.counts)
}

// leastMultiple returns the least common multiple of two numbers above 0.
func LeastMultiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
