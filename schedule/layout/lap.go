package layout

import (
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// come gives what is born in the repeats of a cycle its place, and what is born before them
// and lives in them the place of what is born in its stead from then on.
func (s *steady) come(p *player, fixed []int64, cyclic []bool) {
	span := p.spans[s.segment]
	var start int32
	for _, v := range p.visits {
		if int(v.at.segment) == s.segment && int(v.at.repeat) == span.lead && v.at.index == 0 {
			start = v.since
		}
	}
	for i := range p.items {
		it := &p.items[i]
		repeat := int(it.place.repeat)
		if int(it.place.segment) != s.segment || repeat >= p.program[s.segment].Repeat-span.tail || repeat < span.lead && it.death <= start {
			continue
		}
		b, known := s.births[birth{it.place.index, it.ordinal}]
		switch {
		case known && s.Buffers[b].Size == it.bytes:
			fixed[i], cyclic[i] = s.floor+s.offset(repeat, b), true
		case repeat >= span.lead:
			fixed[i], cyclic[i] = -1, true
		}
	}
}

// lap adds a cycle of the round to a problem, from a time on, with what lives on below
// it. It returns when that ends.
func (s *steady) lap(problem *placement.Problem, offsets *[]int64, p *player, from int64) (end int64) {
	n := len(s.Buffers)
	end = from + int64(s.laid.Cycle)*s.Period
	add := func(b placement.Buffer, at int64) {
		problem.Buffers, *offsets = append(problem.Buffers, b), append(*offsets, at)
	}
	problem.Buffers, *offsets = slices.Grow(problem.Buffers, n*s.laid.Cycle), slices.Grow(*offsets, n*s.laid.Cycle)
	for k := range s.laid.Cycle {
		for i, b := range s.Buffers {
			begin := from + int64(k)*s.Period
			b.Lower, b.Upper = b.Lower+begin, b.Upper+begin
			if over := b.Upper - end; over > 0 { // it lives on at the beginning
				b.Gaps = []placement.Gap{{Lower: from + over, Upper: b.Lower}}
				b.Lower, b.Upper = from, end
				if over == b.Gaps[0].Upper-from {
					b.Gaps = nil
				}
			}
			add(b, s.floor+s.laid.Offsets[k*n+i])
		}
	}
	for _, i := range s.kept {
		add(placement.Buffer{Lower: from, Upper: end, Size: p.items[i].bytes}, (*offsets)[i])
	}
	return end
}
