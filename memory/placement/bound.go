package placement

import (
	"cmp"
	"slices"
)

// Bound returns the most bytes that are alive at once in a valid problem. No layout is
// lower.
func (p *Problem) Bound() int64 {
	var live, most int64
	for _, e := range p.changes() {
		size := p.Buffers[e.buffer].Size
		if !e.birth {
			size = -size
		}
		live += size
		most = max(most, live)
	}
	return most
}

// change is a time at which a buffer starts or stops to need its bytes.
type change struct {
	time   int64
	buffer int32
	birth  bool
}

// changes returns the changes of all buffers in order of time. At one time what ends
// comes first, and else the buffers are in order.
func (p *Problem) changes() []change {
	n := len(p.Buffers)
	for i := range p.Buffers {
		n += len(p.Buffers[i].Gaps)
	}
	all := make([]change, 0, 2*n)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		all = append(all, change{b.Lower, int32(i), true})
		for _, g := range b.Gaps {
			all = append(all, change{g.Lower, int32(i), false}, change{g.Upper, int32(i), true})
		}
		all = append(all, change{b.Upper, int32(i), false})
	}
	if counted := count(all); counted != nil {
		return counted
	}
	slices.SortStableFunc(all, func(x, y change) int {
		switch {
		case x.time != y.time:
			return cmp.Compare(x.time, y.time)
		case x.birth == y.birth:
			return 0
		case y.birth:
			return -1
		}
		return 1
	})
	return all
}

// count sorts changes by counting them, where there are about as many as times: nil where
// there are not. What is alike stays in order.
func count(all []change) []change {
	if len(all) == 0 {
		return nil
	}
	first, last := all[0].time, all[0].time
	for _, c := range all {
		first, last = min(first, c.time), max(last, c.time)
	}
	if times := uint64(last) - uint64(first); times >= uint64(4*len(all)) {
		return nil
	}
	key := func(c change) int {
		k := 2 * int(c.time-first)
		if c.birth {
			k++
		}
		return k
	}
	next := make([]int32, 2*int(last-first)+3) // by key, how many come before it
	for _, c := range all {
		next[key(c)+1]++
	}
	for k := 1; k < len(next); k++ {
		next[k] += next[k-1]
	}
	sorted := make([]change, len(all))
	for _, c := range all {
		k := key(c)
		sorted[next[k]] = c
		next[k]++
	}
	return sorted
}
