package layout

import "slices"

// steadyState describes a repeat of a segment's cycle. All of them are equal.
type steadyState struct {
	period int64 // number of changes in a repeat
	births []lifetime
	sizes  map[int64][]int32 // by bytes: the births that outlive their action, in order
}

// lifetime is the birth and the death of an allocation, as numbers of changes since the repeat of the
// birth began. A death in a later repeat is at or above the period.
type lifetime struct {
	lower, upper int64
	bytes        int64
}

func (l lifetime) length() int64 { return l.upper - l.lower }

// steadyState returns the steady state of a segment with a cycle, or nil if the births and the
// deaths in a repeat do not correspond one to one.
func (p *player) steadyState(segment int) *steadyState {
	visits, first := p.cycleVisits(segment), p.firstBirths(segment)
	begin := visits[0].start
	changes := p.log[begin:visits[len(visits)-1].start]
	s := &steadyState{period: int64(len(changes)), sizes: map[int64][]int32{}}
	for i, change := range changes {
		if change >= 0 {
			s.births = append(s.births, lifetime{lower: int64(i), bytes: p.allocations[change].bytes})
		}
	}
	// If an allocation that was born k repeats earlier dies in this repeat, the same birth of this
	// repeat dies k repeats later.
	for i, change := range changes {
		if change >= 0 {
			continue
		}
		it := &p.allocations[^change]
		at := it.position
		if int(at.segment) != segment || first[at.index]+it.ordinal >= first[at.index+1] {
			return nil
		}
		s.births[first[at.index]+it.ordinal].upper = int64(p.spans[segment].lead-int(at.repeat))*s.period + int64(i)
	}
	action := 0
	for i, b := range s.births {
		if b.upper <= b.lower {
			return nil
		}
		for int64(visits[action+1].start-begin) <= b.lower {
			action++
		}
		if b.upper >= int64(visits[action+1].start-begin) {
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
