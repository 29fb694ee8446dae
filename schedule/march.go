package schedule

import "math"

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
type march struct {
	walk
	*outline
	ranks  []cursor
	counts []int64 // numbers in the visitor's own meaning; it compares them by less

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
	step(rank int, a Action, mb int64) bool
}

// lineup is where everything in a march is, but for the sets.
type lineup struct {
	ranks  []cursor
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
func newMarch(o *outline, sets, counts int) march {
	ranks := len(o.plan.Programs)
	m := march{walk: newWalk(sets), outline: o, ranks: make([]cursor, ranks), counts: make([]int64, counts),
		laps: make([]int64, ranks), stops: make([]int64, ranks), steps: make([]int, ranks), drift: make([]int64, counts)}
	for rank, program := range o.plan.Programs {
		m.ranks[rank].program = program
		for _, s := range program {
			m.repeating = m.repeating || s.Repeat > 3
		}
	}
	m.open()
	return m
}

// run marches until no rank can go on: to the end of all programs, unless ranks
// block each other or the limit of work is reached.
func (m *march) run(v marcher) {
	for !m.exhausted {
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
func (m *march) round(v marcher) bool {
	moved := false
	for i := range m.ranks {
		rank := i
		if m.down {
			rank = len(m.ranks) - 1 - i
		}
		if m.turn(v, rank) {
			moved = true
		}
	}
	m.down = !m.down
	return moved
}

// turn lets a rank run its next actions, and reports whether it could run any.
func (m *march) turn(v marcher, rank int) bool {
	p, begin := &m.ranks[rank], m.ranks[rank].position
	for end := min(begin+burst, m.stops[rank]); p.position < end && !m.exhausted; p.advance() {
		a, ok := p.action()
		if !ok {
			break
		}
		if m.work++; m.work > maxWork || m.held > maxHeld {
			m.exhausted = true
		}
		if !v.step(rank, a, int64(a.Microbatch())) {
			break
		}
	}
	if !m.trial {
		m.visited += p.position - begin
	}
	return p.position > begin
}

// less reports whether a number is less than another one.
func (m *march) less(a, b int64) bool { return m.note(a < b) }

// stands reports whether the rank stands before this action, whatever dies with it.
func (m *march) stands(rank int, want Action) bool {
	a, ok := m.ranks[rank].action()
	if !m.note(ok && a.Kind() == want.Kind() && a.Stage() == want.Stage()) {
		return false
	}
	below := m.less(int64(a.Microbatch()), int64(want.Microbatch()))
	return !below && !m.less(int64(want.Microbatch()), int64(a.Microbatch()))
}

// goRound runs a lap, and leaps over those that are like it.
func (m *march) goRound(v marcher) {
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
func (m *march) measure() bool {
	stride := 1
	for rank := range m.ranks {
		if s := m.ranks[rank].repeating(); s != nil {
			if stride = leastMultiple(stride, pace(s)); stride > MaxMicrobatches {
				return false
			}
		}
	}
	actions := int64(0)
	for rank := range m.ranks {
		m.laps[rank] = 1
		if s := m.ranks[rank].repeating(); s != nil {
			m.laps[rank] = int64(stride/pace(s)) * int64(len(s.Body))
			actions += m.laps[rank]
		}
	}
	return actions > 0 && actions <= maxLap
}

// pace returns by how many microbatches a repeat moves on, 1 if it does not.
func pace(s *Segment) int { return max(s.Stride, -s.Stride, 1) }

// runLap lets every rank go as far as it can, and no further than its lap.
func (m *march) runLap(v marcher) {
	for rank := range m.ranks {
		m.stops[rank] = m.ranks[rank].position + m.laps[rank]
	}
	m.down = false
	for m.round(v) {
	}
	m.log = nil
	m.open()
}

// open lets all ranks go as far as they can.
func (m *march) open() {
	for rank := range m.stops {
		m.stops[rank] = math.MaxInt64
	}
}

// leap moves everything from behind a lap to before a later one that is like it, and
// so are all between. It reports false where not every rank has come round, or where
// nothing can be said of later laps.
func (m *march) leap(v marcher) bool {
	n := m.cameRound()
	if n < 1 || !m.slopes() {
		return false
	}
	for i, now := range m.counts {
		m.drift[i] = now - m.lap.counts[i]
	}
	m.trace, m.past = m.past, m.trace
	for ; n > 0 && !m.exhausted; n /= 2 {
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
func (m *march) cameRound() int64 {
	most, moved := int64(math.MaxInt64), false
	for rank := range m.ranks {
		now, then := &m.ranks[rank], &m.lap.ranks[rank]
		if now.segment != then.segment || now.index != then.index {
			return 0
		}
		step := now.repeat - then.repeat
		if m.steps[rank] = step; step != 0 {
			left := now.program[now.segment].Repeat - 1 - now.repeat
			most, moved = min(most, int64(left/step)-1), true
		}
	}
	if !moved {
		return 0
	}
	return most
}

// shift moves ranks and counts by n laps.
func (m *march) shift(n int64) {
	for rank, step := range m.steps {
		p := &m.ranks[rank]
		p.repeat += int(n) * step
		p.position += n * int64(step*p.body())
	}
	for i, drift := range m.drift {
		m.counts[i] += n * drift
	}
}

// try runs a lap and undoes it, and reports whether it was like the one before.
func (m *march) try(v marcher) bool {
	m.keep(&m.spare)
	m.record(&m.next)
	m.trial = true
	m.runLap(v)
	m.trial = false
	same := m.alike() // and the counts have moved as far then
	m.restore(&m.next)
	m.resume(&m.spare)
	return same
}

// keep notes where everything but the sets is, and resume goes back to it.
func (m *march) keep(f *lineup) {
	f.ranks, f.counts = append(f.ranks[:0], m.ranks...), append(f.counts[:0], m.counts...)
}

func (m *march) resume(f *lineup) {
	copy(m.ranks, f.ranks)
	copy(m.counts, f.counts)
}

// leastMultiple returns the least common multiple of two numbers above 0.
func leastMultiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
