package placement

import (
	"cmp"
	"slices"
)

// Bound returns the maximum number of live bytes at any time in a valid problem. No layout is
// lower.
func (p *Problem) Bound() (most int64) {
	_, load := p.Columns()
	for _, bytes := range load {
		most = max(most, bytes)
	}
	return most
}

// Span is a range of columns, half open.
type Span struct{ Lower, Upper int32 }

// Columns returns the relevant times of a valid problem: the maximal sets of buffers that are
// live together, in order of time. Two buffers are live together if and only if they share a column.
// spans holds the spans of each buffer in ascending order, one more than the buffer has gaps; load holds
// the live bytes of each column.
func (p *Problem) Columns() (spans [][]Span, load []int64) {
	spans = make([][]Span, len(p.Buffers))
	growing, live := false, int64(0) // growing: no buffer has ended since the last birth
	for _, c := range p.changes() {
		b, s := &p.Buffers[c.buffer], &spans[c.buffer]
		if !c.birth {
			growing = false
			live -= b.Size
			(*s)[len(*s)-1].Upper = int32(len(load))
			continue
		}
		if !growing {
			growing = true
			load = append(load, 0)
		}
		live += b.Size
		load[len(load)-1] = live
		if *s == nil {
			*s = make([]Span, 0, 1+len(b.Gaps))
		}
		*s = append(*s, Span{Lower: int32(len(load) - 1)})
	}
	return spans, load
}

// change is a time at which a buffer starts or stops needing its bytes.
type change struct {
	time   int64
	buffer int32
	birth  bool
}

// changes returns the changes of all buffers, including those at their gaps, in order of time. At equal
// times, ends come before births; remaining ties are in order of the buffers.
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
		switch {
		case x.time != y.time:
			return cmp.Compare(x.time, y.time)
		case x.birth == y.birth:
			return cmp.Compare(x.buffer, y.buffer)
		case y.birth:
			return -1
		}
		return 1
	})
	return all
}
