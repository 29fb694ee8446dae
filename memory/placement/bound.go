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
// comes first.
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
	slices.SortFunc(all, func(x, y change) int {
		if c := cmp.Compare(x.time, y.time); c != 0 {
			return c
		}
		if x.birth != y.birth {
			if y.birth {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.buffer, y.buffer)
	})
	return all
}
