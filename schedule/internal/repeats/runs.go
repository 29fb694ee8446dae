package repeats

import (
	"fmt"
	"slices"
)

// Run is the microbatches from Lo up to, and without, Hi.
type Run struct{ Lo, Hi int64 }

// String names the microbatches of the run.
func (r Run) String() string {
	if r.Hi == r.Lo+1 {
		return fmt.Sprintf("microbatch %d", r.Lo)
	}
	return fmt.Sprintf("microbatches %d to %d", r.Lo, r.Hi-1)
}

// Runs is a set of microbatches as sorted runs, no two of which touch. The sets
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

// Has reports whether m is in the set.
func (s Runs) Has(m int64) bool {
	i := s.at(m)
	return i < len(s) && s[i].Lo <= m
}

// Even reports whether all microbatches from lo to hi are in the set, or none is.
func (s Runs) Even(lo, hi int64) bool {
	i := s.at(lo)
	return i == len(s) || s[i].Lo > hi || s[i].Lo <= lo && hi < s[i].Hi
}

// Width returns the number of microbatches from the lowest to the highest.
func (s Runs) Width() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].Hi - s[0].Lo
}

// Minus returns the microbatches of s that are in none of the others.
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

// add puts m into the set. It returns the index of its run, and whether m was not there.
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

// remove takes m out of the set and returns where, and whether it was there.
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
