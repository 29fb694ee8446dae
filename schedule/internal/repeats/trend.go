package repeats

import "slices"

// A Trend skips periods of a machine whose moving numbers change by different amounts, such as the
// clocks of a simulation. The machine must satisfy two conditions. Each new value of a moving number
// is a sum or difference of moving numbers and constants. The run otherwise depends only on fixed
// numbers and on comparisons of such sums, which are passed to Note as differences. (A maximum is a
// comparison that decides which sum becomes the new value.)
//
// Lemma. Suppose that two consecutive periods make the same comparisons with the same results, and
// change each moving number by the same delta. Then each further period changes the moving numbers by
// the same deltas, as long as its comparisons have the same results.
//
// Proof. Let x, y and z be the vectors of moving numbers at the beginning of the first period, between
// the periods and at the end of the second one, and d = y-x = z-y. With these results of the comparisons, a
// period computes a linear function, so there are a matrix A and a vector b with y = Ax+b and z = Ay+b.
// Hence d = z-y = A(y-x) = Ad. The third period ends at Az+b = A(y+d)+b = z+Ad = z+d. The same holds for
// the periods after it, by induction.
//
// So the difference in each comparison changes by a constant from each period to the next. Trend
// computes the number of periods until one of the differences becomes positive or ceases to be.
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

// Run calls period, which runs one period, twice, or once if the state does not recur after the first call.
// It then skips the periods that repeat these two, and returns the number of skipped periods.
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
