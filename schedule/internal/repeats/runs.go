package repeats

import (
	"fmt"
	"slices"
)

// Run is the range of microbatches [Lo, Hi).
type Run struct{ Lo, Hi int64 }

// String returns the microbatches of the run in words.
func (r Run) String() string {
	if r.Hi == r.Lo+1 {
		return fmt.Sprintf("microbatch %d", r.Lo)
	}
	return fmt.Sprintf("microbatches %d to %d", r.Lo, r.Hi-1)
}

// Runs is a set of microbatches, stored as sorted runs that do not touch each other. If a plan runs its
// microbatches in order, its sets consist of one or two runs, regardless of the number of microbatches.
type Runs []Run

// at returns the index of the first run that contains m or microbatches after m, or len(s) if there is none.
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

// Has reports whether m is in the set.
func (s Runs) Has(m int64) bool {
	i := s.at(m)
	return i < len(s) && s[i].Lo <= m
}

// Even reports whether the set contains all microbatches from lo to hi, both included, or none of them.
func (s Runs) Even(lo, hi int64) bool {
	i := s.at(lo)
	return i == len(s) || s[i].Lo > hi || s[i].Lo <= lo && hi < s[i].Hi
}

// Width returns the number of microbatches from the lowest to the highest, including gaps.
func (s Runs) Width() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].Hi - s[0].Lo
}

// Minus returns the microbatches of s that are in none of the other sets.
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

// add adds m to the set. It returns the index from which runs may have moved, and whether m is new.
func (s *Runs) add(m int64) (int, bool) {
	i := s.at(m)
	t := *s
	if i < len(t) && t[i].Lo <= m {
		return i, false
	}
	touchesBelow, touchesAbove := i > 0 && t[i-1].Hi == m, i < len(t) && t[i].Lo == m+1
	switch {
	case touchesBelow && touchesAbove:
		t[i-1].Hi = t[i].Hi
		*s = slices.Delete(t, i, i+1)
	case touchesBelow:
		t[i-1].Hi++
	case touchesAbove:
		t[i].Lo--
	default:
		*s = slices.Insert(t, i, Run{m, m + 1})
	}
	return i, true
}

// extend handles the most frequent cases of add: m is directly after the last run, directly before
// the first run, or in the first run. It reports whether m is new, and whether it handled the case.
func (s Runs) extend(m int64) (added, handled bool) {
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

// shorten removes m if it is the first or last microbatch of the set and its run has others. It
// reports whether it did.
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

// remove removes m from the set. It returns the index from which runs may have moved, and whether m was in
// the set.
func (s *Runs) remove(m int64) (int, bool) {
	i := s.at(m)
	t := *s
	if i == len(t) || t[i].Lo > m {
		return i, false
	}
	first, last := t[i].Lo == m, t[i].Hi == m+1
	switch {
	case first && last:
		*s = slices.Delete(t, i, i+1)
	case first:
		t[i].Lo++
	case last:
		t[i].Hi--
	default:
		*s = slices.Insert(t, i, Run{t[i].Lo, m})
		(*s)[i+1].Lo = m + 1
	}
	return i, true
}
