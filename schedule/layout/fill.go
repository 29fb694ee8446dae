package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// fill places what has no place yet, the largest first: each in the lowest bytes that are
// free for as long as it lives.
func fill(problem *placement.Problem, offsets []int64) {
	near := beside(problem, offsets)
	homeless := slices.DeleteFunc(slices.Clone(near), func(g int) bool { return offsets[g] >= 0 })
	slices.SortStableFunc(homeless, func(g, h int) int { return cmp.Compare(problem.Buffers[h].Size, problem.Buffers[g].Size) })
	for _, g := range homeless {
		b := &problem.Buffers[g]
		var taken []extent
		for _, h := range near { // in order of birth
			other := &problem.Buffers[h]
			if other.Lower >= b.Upper {
				break
			}
			if offsets[h] >= 0 && meet(b, other) {
				taken = append(taken, extent{offsets[h], offsets[h] + other.Size})
			}
		}
		slices.SortFunc(taken, func(x, y extent) int { return cmp.Compare(x.lower, y.lower) })
		at := int64(0)
		for _, t := range taken {
			if t.lower >= at+b.Size {
				break
			}
			at = max(at, roundUp(t.upper, max(b.Align, 1)))
		}
		offsets[g] = at
	}
}

// beside returns the groups of a problem that are free, or live between the birth and the
// death of one that is.
func beside(problem *placement.Problem, fixed []int64) (groups []int) {
	var busy []stint                    // times of what is free, ascending
	for g, b := range problem.Buffers { // in order of birth
		if fixed[g] >= 0 {
			continue
		}
		if n := len(busy); n > 0 && b.Lower <= busy[n-1].end {
			busy[n-1].end = max(busy[n-1].end, b.Upper)
		} else {
			busy = append(busy, stint{b.Lower, b.Upper})
		}
	}
	next := 0 // of the busy times, the first that ends behind a birth
	for g := range problem.Buffers {
		b := &problem.Buffers[g]
		for next < len(busy) && busy[next].end <= b.Lower {
			next++
		}
		if next < len(busy) && busy[next].begin < b.Upper {
			groups = append(groups, g)
		}
	}
	return groups
}

// extent is a range of bytes.
type extent struct{ lower, upper int64 }

// meet reports whether two buffers need their bytes at the same time.
func meet(a, b *placement.Buffer) bool {
	for i, k := 0, 0; i <= len(a.Gaps) && k <= len(b.Gaps); {
		one, other := stay(a, i), stay(b, k)
		switch {
		case one.end <= other.begin:
			i++
		case other.end <= one.begin:
			k++
		default:
			return true
		}
	}
	return false
}

// stay is the time of a buffer before a gap, or behind the last one.
func stay(b *placement.Buffer, gap int) stint {
	t := stint{b.Lower, b.Upper}
	if gap > 0 {
		t.begin = b.Gaps[gap-1].Upper
	}
	if gap < len(b.Gaps) {
		t.end = b.Gaps[gap].Lower
	}
	return t
}
