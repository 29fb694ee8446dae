package schedule

import (
	"fmt"
	"slices"
)

// run is the microbatches from lo up to, and without, hi.
type run struct{ lo, hi int64 }

// String names the microbatches of the run.
func (r run) String() string {
	if r.hi == r.lo+1 {
		return fmt.Sprintf("microbatch %d", r.lo)
	}
	return fmt.Sprintf("microbatches %d to %d", r.lo, r.hi-1)
}

// runs is a set of microbatches as sorted runs, no two of which touch. The sets
// of a plan that goes through its microbatches in order have one or two runs,
// whatever their number; any set can be held.
type runs []run

// at returns the index of the first run that ends after m.
func (s runs) at(m int64) int {
	lo, hi := 0, len(s)-1
	if hi < 0 || s[hi].hi <= m {
		return hi + 1
	}
	for lo < hi {
		if mid := (lo + hi) / 2; s[mid].hi > m {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// width returns the number of microbatches from the lowest to the highest.
func (s runs) width() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].hi - s[0].lo
}

// minus returns what is in s and in none of the others.
func (s runs) minus(others ...runs) runs {
	rest := slices.Clone(s)
	for _, other := range others {
		from := rest
		rest = nil
		for _, r := range from {
			for i := other.at(r.lo); i < len(other) && other[i].lo < r.hi; i++ {
				if other[i].lo > r.lo {
					rest = append(rest, run{r.lo, other[i].lo})
				}
				r.lo = other[i].hi
			}
			if r.lo < r.hi {
				rest = append(rest, r)
			}
		}
	}
	return rest
}

// edit says how a microbatch lies to the runs of a set, which is all that an
// operation on the set depends on.
type edit uint32

const (
	outside  edit = iota
	inside        // within a run, at neither end
	below         // touches the run above it
	above         // touches the run below it
	between       // touches both
	single        // is a run of its own
	lowest        // first of a run
	highest       // last of a run
	numEdits = iota
)

// add puts m into the set and returns what it did, and where; inside means that
// m was there already.
func (s *runs) add(m int64) (int, edit) {
	i := s.at(m)
	t := *s
	if i < len(t) && t[i].lo <= m {
		return i, inside
	}
	touchesBelow, touchesAbove := i > 0 && t[i-1].hi == m, i < len(t) && t[i].lo == m+1
	switch {
	case touchesBelow && touchesAbove:
		t[i-1].hi = t[i].hi
		*s = slices.Delete(t, i, i+1)
		return i, between
	case touchesBelow:
		t[i-1].hi++
		return i, above
	case touchesAbove:
		t[i].lo--
		return i, below
	}
	if i == len(t) {
		*s = append(t, run{m, m + 1})
	} else {
		*s = slices.Insert(t, i, run{m, m + 1})
	}
	return i, single
}

// extend puts m into the set where it comes right behind the last run or right before the
// first one, or is in that already, as it nearly always does. It reports whether m was
// not there, and whether it was one of these.
func (s runs) extend(m int64) (added, plainly bool) {
	n := len(s) - 1
	switch {
	case n < 0:
		return false, false
	case s[n].hi == m:
		s[n].hi++
		return true, true
	case s[0].lo == m+1:
		s[0].lo--
		return true, true
	}
	return false, s[0].lo <= m && m < s[0].hi
}

// shorten takes m out of the set if it is the first of all or the last, and not a run of
// its own, and reports whether it did.
func (s runs) shorten(m int64) bool {
	n := len(s) - 1
	switch {
	case n < 0:
		return false
	case s[0].lo == m && s[0].hi > m+1:
		s[0].lo++
		return true
	case s[n].hi == m+1 && s[n].lo < m:
		s[n].hi--
		return true
	}
	return false
}

// remove takes m out of the set and returns what it did, and where; outside
// means that m was not there.
func (s *runs) remove(m int64) (int, edit) {
	i := s.at(m)
	t := *s
	if i == len(t) || t[i].lo > m {
		return i, outside
	}
	first, last := t[i].lo == m, t[i].hi == m+1
	switch {
	case first && last && i == len(t)-1:
		*s = t[:i]
		return i, single
	case first && last:
		*s = slices.Delete(t, i, i+1)
		return i, single
	case first:
		t[i].lo++
		return i, lowest
	case last:
		t[i].hi--
		return i, highest
	}
	*s = slices.Insert(t, i, run{t[i].lo, m})
	(*s)[i+1].lo = m + 1
	return i, inside
}
