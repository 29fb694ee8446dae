package repeats

import "slices"

// A Trend skips periods of a machine whose numbers each change by a constant, but by different
// constants. The numbers must be sums of constants and of each other, and the run must otherwise
// depend only on comparisons of two numbers. If two consecutive periods change every number by the
// same delta and make comparisons with the same results, the next period does so too, until the
// difference in a comparison changes its sign.
type Trend struct {
	noting      bool
	notes, past []int64
	was         State
	by, before  []int64
}

// Trending is a machine for a Trend. Began is called when a period begins, before State.
type Trending interface {
	Machine
	Began()
}

// maxNotes is the maximum number of comparisons of a period.
const maxNotes = 1 << 24

// Note records a comparison of two numbers by their difference.
func (t *Trend) Note(difference int64) {
	if t.noting {
		t.notes = append(t.notes, difference)
		t.noting = len(t.notes) < maxNotes
	}
}

// Run runs two periods and skips the periods that repeat them. It returns the number of skipped
// periods.
func (t *Trend) Run(m Trending, period func()) int64 {
	if !t.observe(m, period) {
		return 0
	}
	t.by, t.before = t.before, t.by
	t.notes, t.past = t.past, t.notes
	_, most := m.Moves(t.before)
	if !t.observe(m, period) || !slices.Equal(t.by, t.before) {
		return 0
	}
	_, more := m.Moves(t.by)
	if most == 0 || len(t.notes) != len(t.past) {
		return 0
	}
	n := more
	for i, now := range t.notes {
		change := now - t.past[i]
		switch {
		case (now > 0) != (t.past[i] > 0):
			return 0
		case now > 0 && change < 0:
			n = min(n, (now-1)/-change)
		case now <= 0 && change > 0:
			n = min(n, -now/change)
		}
	}
	if n > 0 {
		m.Skip(n, t.by)
	}
	return max(n, 0)
}

// observe runs a period and reports whether the state has recurred.
func (t *Trend) observe(m Trending, period func()) bool {
	m.Began()
	t.was = State{fixed: t.was.fixed[:0], moving: t.was.moving[:0]}
	m.State(&t.was)
	t.notes, t.noting = t.notes[:0], true
	period()
	if !t.noting || t.was.differs {
		t.noting = false
		return false
	}
	t.noting = false
	now := State{than: &t.was, by: t.by[:0]}
	m.State(&now)
	t.by = now.by
	return now.same()
}
