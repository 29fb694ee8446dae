package repeats

import "slices"

// A Trend skips periods of a machine whose moving numbers change by different constants, such as the
// clocks of a simulation. Each moving number must be a sum of constants and of moving numbers, and the
// run must otherwise depend only on comparisons of two moving numbers, which are passed to Note.
//
// Suppose that two consecutive periods change each number by the same delta and that all comparisons
// have the same results. Then each difference in a comparison is a linear function of the period, and
// further periods change the numbers by the same deltas, until one of these differences changes its
// sign. Trend computes the number of periods until then.
type Trend struct {
	noting                 bool
	notes, previousNotes   []int64
	start                  State
	deltas, previousDeltas []int64
}

// Trending is a machine for a Trend. Began is called at the beginning of a period, before State.
type Trending interface {
	Machine
	Began()
}

// maxNotes is the maximum number of comparisons of a period.
const maxNotes = 1 << 24

// Note records a comparison of two numbers as their difference.
func (t *Trend) Note(difference int64) {
	if t.noting {
		t.notes = append(t.notes, difference)
		t.noting = len(t.notes) < maxNotes
	}
}

// Run calls period twice, to run two periods, and skips the periods that repeat them. It returns the
// number of skipped periods.
func (t *Trend) Run(m Trending, period func()) int64 {
	if !t.observe(m, period) {
		return 0
	}
	t.deltas, t.previousDeltas = t.previousDeltas, t.deltas
	t.notes, t.previousNotes = t.previousNotes, t.notes
	_, limit := m.Moves(t.previousDeltas)
	if !t.observe(m, period) || !slices.Equal(t.deltas, t.previousDeltas) {
		return 0
	}
	_, nextLimit := m.Moves(t.deltas)
	if limit == 0 || len(t.notes) != len(t.previousNotes) {
		return 0
	}
	n := nextLimit
	for i, now := range t.notes {
		change := now - t.previousNotes[i]
		switch {
		case (now > 0) != (t.previousNotes[i] > 0):
			return 0
		case now > 0 && change < 0:
			n = min(n, (now-1)/-change)
		case now <= 0 && change > 0:
			n = min(n, -now/change)
		}
	}
	if n > 0 {
		m.Skip(n, t.deltas)
	}
	return max(n, 0)
}

// observe runs a period and records its comparisons and deltas. It reports whether the state has
// recurred.
func (t *Trend) observe(m Trending, period func()) bool {
	m.Began()
	t.start = State{fixed: t.start.fixed[:0], moving: t.start.moving[:0]}
	m.State(&t.start)
	t.notes, t.noting = t.notes[:0], true
	period()
	if !t.noting || t.start.differs {
		t.noting = false
		return false
	}
	t.noting = false
	now := State{reference: &t.start, deltas: t.deltas[:0]}
	m.State(&now)
	t.deltas = now.deltas
	return now.same()
}
