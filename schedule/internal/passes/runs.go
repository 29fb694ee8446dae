package passes

import (
	"fmt"
	"slices"
)

// run is the microbatches from lo up to, and without, hi.
type Run struct{ Lo, Hi int64 }

// String names the microbatches of the run.
func (r Run) String() string {
	if r.Hi == r.Lo+1 {
		return fmt.Sprintf("microbatch %d", r.Lo)
	}
	return fmt.Sprintf("microbatches %d to %d", r.Lo, r.Hi-1)
}

// runs is a set of microbatches as sorted runs, no two of which touch. The sets
// of a plan that goes through its microbatches in order have one or two runs,
// whatever their number; any set can be held.
type Runs []Run

// at returns the index of the first run that ends after m.
func (s Runs) at(m int64) int {
	lo, hi := 0, len(s)-1
	if hi < 0 || s[hi].Hi <= m {
		return hi + 1
	}
	for lo < hi {
		if mid := (lo + hi) / 2; s[mid].Hi > m {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// width returns the number of microbatches from the lowest to the highest.
func (s Runs) Width() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].Hi - s[0].Lo
}

// minus returns what is in s and in none of the others.
func (s Runs) Minus(others ...Runs) Runs {
	rest := slices.Clone(s)
	for _, other := range others {
		from := rest
		rest = nil
		for _, r := range from {
			for i := other.at(r.Lo); i < len(other) && other[i].Lo < r.Hi; i++ {
				if other[i].Lo > r.Lo {
					rest = append(rest, Run{r.Lo, other[i].Lo})
				}
				r.Lo = other[i].Hi
			}
			if r.Lo < r.Hi {
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
func (s *Runs) add(m int64) (int, edit) {
	i := s.at(m)
	t := *s
	if i < len(t) && t[i].Lo <= m {
		return i, inside
	}
	touchesBelow, touchesAbove := i > 0 && t[i-1].Hi == m, i < len(t) && t[i].Lo == m+1
	switch {
	case touchesBelow && touchesAbove:
		t[i-1].Hi = t[i].Hi
		*s = slices.Delete(t, i, i+1)
		return i, between
	case touchesBelow:
		t[i-1].Hi++
		return i, above
	case touchesAbove:
		t[i].Lo--
		return i, below
	}
	if i == len(t) {
		*s = append(t, Run{m, m + 1})
	} else {
		*s = slices.Insert(t, i, Run{m, m + 1})
	}
	return i, single
}

// extend puts m into the set where it comes right behind the last run or right before the
// first one, or is in that already, as it nearly always does. It reports whether m was
// not there, and whether it was one of these.
func (s Runs) extend(m int64) (added, plainly bool) {
	n := len(s) - 1
	switch {
	case n < 0:
		return false, false
	case s[n].Hi == m:
		s[n].Hi++
		return true, true
	case s[0].Lo == m+1:
		s[0].Lo--
		return true, true
	}
	return false, s[0].Lo <= m && m < s[0].Hi
}

// shorten takes m out of the set if it is the first of all or the last, and not a run of
// its own, and reports whether it did.
func (s Runs) shorten(m int64) bool {
	n := len(s) - 1
	switch {
	case n < 0:
		return false
	case s[0].Lo == m && s[0].Hi > m+1:
		s[0].Lo++
		return true
	case s[n].Hi == m+1 && s[n].Lo < m:
		s[n].Hi--
		return true
	}
	return false
}

// remove takes m out of the set and returns what it did, and where; outside
// means that m was not there.
func (s *Runs) remove(m int64) (int, edit) {
	i := s.at(m)
	t := *s
	if i == len(t) || t[i].Lo > m {
		return i, outside
	}
	first, last := t[i].Lo == m, t[i].Hi == m+1
	switch {
	case first && last && i == len(t)-1:
		*s = t[:i]
		return i, single
	case first && last:
		*s = slices.Delete(t, i, i+1)
		return i, single
	case first:
		t[i].Lo++
		return i, lowest
	case last:
		t[i].Hi--
		return i, highest
	}
	*s = slices.Insert(t, i, Run{t[i].Lo, m})
	(*s)[i+1].Lo = m + 1
	return i, inside
}
