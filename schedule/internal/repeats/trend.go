package repeats

import "slices"

// A Trend skips periods of a machine whose numbers move evenly, but not all alike. They must be
// sums of constants and of each other, and everything else must follow from comparisons of two
// of them. If two periods in a row move every number by as much and make the same comparisons,
// with differences that change evenly, then the next one does so too, until a difference changes
// its sign.
type Trend struct {
	noting      bool
	notes, past []int64
	was         State
	by, before  []int64
}

// Began of a Trending machine is called when a period begins, before State.
type Trending interface {
	Machine
	Began()
}

// maxNotes bounds the comparisons of a period.
const maxNotes = 1 << 24

// Note notes a comparison: by how much one number is larger than the other.
func (t *Trend) Note(difference int64) {
	if t.noting {
		t.notes = append(t.notes, difference)
		t.noting = len(t.notes) < maxNotes
	}
}

// Run runs two periods and skips those that are like them. It returns how many it has
// skipped.
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

// observe runs a period, and reports whether the state has recurred.
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
