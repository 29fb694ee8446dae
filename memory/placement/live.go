package placement

import (
	"cmp"
	"slices"
)

// liveSet is what lies where at one moment, of a problem without gaps that is laid out in
// order of birth.
type liveSet struct {
	problem *Problem
	offsets []int64
	live    []occupant // from low to high
}

// occupant is a buffer that is alive.
type occupant struct {
	extent
	buffer int32
}

func newLiveSet(p *Problem) liveSet {
	return liveSet{problem: p, offsets: make([]int64, len(p.Buffers))}
}

// put places a buffer.
func (s *liveSet) put(buffer int32, at int64) {
	s.offsets[buffer] = at
	o := occupant{extent{at, at + s.problem.Buffers[buffer].Size}, buffer}
	s.live = slices.Insert(s.live, s.index(at), o)
}

// end ends a buffer, and returns where it lay.
func (s *liveSet) end(buffer int32) occupant {
	k := s.index(s.offsets[buffer])
	o := s.live[k]
	s.live = slices.Delete(s.live, k, k+1)
	return o
}

// index returns the first of the living that lies at an offset or above it.
func (s *liveSet) index(at int64) int {
	k, _ := slices.BinarySearchFunc(s.live, at, func(o occupant, at int64) int { return cmp.Compare(o.lower, at) })
	return k
}
