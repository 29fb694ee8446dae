package layout

import "slices"

// steadyState holds the births in each repeat of a segment after its lead, when all repeats are
// equal.
type steadyState struct {
	segment int
	period  int64 // number of changes in a repeat
	births  []lifetime
	sizes   map[int64][]int32 // births that outlive their action, by bytes, in order of birth
}

// lifetime is the birth of an allocation and its death, as numbers of changes since the repeat of
// the birth began. A death in a later repeat is at or above the period.
type lifetime struct {
	lower, upper int64
	bytes        int64
}

func (l lifetime) length() int64 { return l.upper - l.lower }

// steady returns the steady state of a segment with skipped repeats, or nil if the births and the
// deaths in a repeat do not correspond one to one.
func (p *player) steady(segment int) *steadyState {
	repeat := p.spans[segment].lead // the first of the equal repeats
	s := &steadyState{segment: segment, sizes: map[int64][]int32{}}
	var ends []int64 // of the actions of the repeat
	var from, to int32
	for i, v := range p.visits {
		if int(v.at.segment) == segment && int(v.at.repeat) == repeat {
			if v.at.index == 0 {
				from = v.since
			}
			to = int32(len(p.log))
			if i+1 < len(p.visits) {
				to = p.visits[i+1].since
			}
			ends = append(ends, int64(to-from))
		}
	}
	s.period = int64(to - from)
	numbers := map[[2]int32]int{} // of a birth, by its action and its ordinal there
	for i := range p.allocations {
		if it := &p.allocations[i]; it.birth >= from && it.birth < to {
			numbers[[2]int32{it.position.index, it.ordinal}] = len(s.births)
			s.births = append(s.births, lifetime{lower: int64(it.birth - from), bytes: it.bytes})
		}
	}
	// The death of a birth of this repeat is that of the same birth of an earlier repeat in it,
	// as many repeats later.
	for i := range p.allocations {
		if it := &p.allocations[i]; it.death >= from && it.death < to {
			b, known := numbers[[2]int32{it.position.index, it.ordinal}]
			if !known || int(it.position.segment) != segment {
				return nil
			}
			s.births[b].upper = int64(repeat-int(it.repeat))*s.period + int64(it.death-from)
		}
	}
	action := 0
	for i, b := range s.births {
		if b.upper <= b.lower {
			return nil
		}
		for ends[action] <= b.lower {
			action++
		}
		if b.upper >= ends[action] {
			s.sizes[b.bytes] = append(s.sizes[b.bytes], int32(i))
		}
	}
	return s
}

// longest returns the longest life, in repeats.
func (s *steadyState) longest() int {
	longest := slices.MaxFunc(s.births, func(a, b lifetime) int { return int(a.length() - b.length()) })
	return int((longest.length() + s.period - 1) / s.period)
}
