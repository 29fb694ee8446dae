package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// A skipper skips repeats of a segment that equal the previous ones. It divides the repeats into a
// lead of repeats that differ, one cycle of equal repeats, the skipped repeats, and a tail of repeats
// that differ again.
//
//  1. After each repeat of the lead it compares the state of the player with the state after the
//     previous repeat, with microbatches and births relative to the repeat. If both are equal, the
//     repeat led from a state to the same state. The next repeat depends on the state alone, so by
//     induction all later repeats make the same changes, until the source has fewer entries left than
//     a repeat pulls. The state needs no sizes: with one shape class, the slot of an allocation and
//     its index there determine its size. The cycle begins with this repeat.
//  2. The player plays the cycle, which is at least as long as the longest life. Then the skipper
//     skips a multiple of it. So skipping is exact: apart from the numbers of microbatches, the played
//     program has every set of live buffers that the whole program has.
//  3. Of the repeats that are left, the first one whose changes have another hash begins the tail.
type skipper struct {
	before    []uint64 // the state after the last repeat; nil at the beginning
	state     []uint64
	liveCount int    // number of live allocations after the last repeat
	hash      uint64 // of the changes of this repeat
	cycleHash uint64 // of the changes of the first repeat of the cycle
	longest   int    // the longest life among the allocations that died in this repeat, in repeats
	skipped   bool
	rotations map[int]*rotation // by segment: the cycle is that of the rotation, not the longest life
}

// A segment with fewer than longestRamp microbatches, and fewer than an eighth of the plan's, is
// considered a part of the warm-up or the drain, and no repeat of it is skipped.
const longestRamp = 1 << 12

// span counts the repeats of a segment. Equal repeats that are played between the skipped ones and the
// tail are in none of the counts; they have the places of the cycle. If nothing is skipped, all
// repeats are the lead.
type span struct{ lead, cycle, skipped, tail int }

// beginSegment resets the skipper, except for its rotations.
func (s *skipper) beginSegment() {
	*s = skipper{before: s.before[:0], state: s.state[:0], rotations: s.rotations}
}

// record adds a change to the hash of the repeat, and to the longest life if it is a death.
func (s *skipper) record(p *player, change int32) {
	if change >= 0 {
		it := &p.allocations[change]
		s.hash = mix(s.hash, uint64(it.position.index)<<32|uint64(it.ordinal), uint64(it.bytes)<<8|uint64(it.class))
		return
	}
	it := &p.allocations[^change]
	s.hash = mix(s.hash, p.id(it, ^change), 1)
	if it.position.segment == p.at.segment {
		// In repeats, rounded up: one more if the death is later in its repeat than the birth.
		age := int(p.at.repeat - it.position.repeat)
		if p.count-1-p.repeatStart > it.inRepeat {
			age++
		}
		s.longest = max(s.longest, age)
	}
}

func mix(hash uint64, words ...uint64) uint64 {
	for _, w := range words {
		hash = (hash ^ w) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	return hash
}

// endRepeat returns the number of repeats to skip after repeat r.
func (s *skipper) endRepeat(p *player, segment *schedule.Segment, r int) int {
	hash := s.hash
	s.hash = 0
	span := &p.spans[p.at.segment]
	if span.cycle == 0 {
		if segment.Repeat < 4 || segment.Repeat*max(segment.Stride, -segment.Stride) < min(p.plan.Microbatches/8, longestRamp) {
			return 0 // a ramp
		}
		s.state = s.state[:0]
		live := p.liveCount()
		if r == 0 || live == s.liveCount { // otherwise the states differ
			s.state = p.state(s.state, r*segment.Stride)
		}
		s.liveCount = live
		same := len(s.before) > 0 && slices.Equal(s.before, s.state)
		s.before, s.state = s.state, s.before
		if !same || p.entriesLeft(segment.Stride) < 1 {
			s.longest = 0
			return 0
		}
		s.cycleHash = hash
		span.lead, span.cycle = r, max(s.longest, 1)
		if r := s.rotations[int(p.at.segment)]; r != nil {
			span.cycle = r.cycle
		}
	}
	if span.tail > 0 || hash != s.cycleHash {
		span.tail++
		return 0
	}
	if s.skipped || r+1 < span.lead+span.cycle {
		return 0
	}
	s.skipped = true
	n := min(segment.Repeat-1-r, p.entriesLeft(segment.Stride)) / span.cycle * span.cycle
	if n <= 0 {
		return 0
	}
	p.shiftRepeats(n, segment.Stride)
	span.skipped = n
	return n
}

// entriesLeft returns how many more repeats can pull as many entries as the last one did. It is the
// number of microbatches if entries set no limit, and 0 if the stride is negative.
func (p *player) entriesLeft(stride int) int {
	if p.pulled == p.plan.Microbatches || stride == 0 {
		return p.plan.Microbatches
	}
	if stride < 0 {
		return 0
	}
	return (p.plan.Microbatches - p.pulled) / (stride * len(p.wants))
}

// liveCount returns the number of live allocations.
func (p *player) liveCount() int {
	dead := int(p.count) - len(p.allocations) // every change that is not a birth
	return len(p.allocations) - dead
}

// id identifies an allocation by its birth. If it was born in this segment, its repeat is relative to the
// current one, so the same birth in the next repeat has the same id then.
func (p *player) id(it *allocation, number int32) uint64 {
	if it.position.segment != p.at.segment {
		return uint64(number)<<1 | 1
	}
	return uint64(p.at.repeat-it.position.repeat)<<44 | uint64(it.position.index)<<22 | uint64(it.ordinal)<<1
}

// state appends everything that determines later changes: the next entry to pull, and the
// allocations in every slot with their references. For slots that were filled in this segment,
// microbatches are relative to shift; for older slots they are absolute.
func (p *player) state(to []uint64, shift int) []uint64 {
	relative := func(segment, microbatch int32) uint64 {
		if segment == p.at.segment && microbatch >= 0 {
			return uint64(int64(microbatch)-int64(shift))<<1 | 1
		}
		return uint64(int64(microbatch)) << 1
	}
	to = append(to, uint64(p.pulled-shift*len(p.wants))<<1|1)
	if p.pulled == p.plan.Microbatches {
		to[0] = 0
	}
	type keyed struct {
		slot, microbatch uint64
		contents
	}
	keys := make([]keyed, 0, len(p.held))
	for w, h := range p.held {
		keys = append(keys, keyed{uint64(w.kind)<<32 | uint64(uint32(w.stage)), relative(h.segment, w.microbatch), h})
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.microbatch, b.microbatch))
	})
	for _, k := range keys {
		to = append(to, k.slot, k.microbatch, k.wanted, uint64(len(k.allocations)))
		for _, i := range k.allocations {
			switch {
			case i < 0:
				to = append(to, uint64(int64(i)))
			case p.allocations[i].refs == 0:
				to = append(to, 0)
			default:
				to = append(to, p.id(&p.allocations[i], i), uint64(p.allocations[i].refs))
			}
		}
	}
	return to
}

// shiftRepeats adds n repeats to the live allocations and the slots of this segment, and to the next
// entry.
func (p *player) shiftRepeats(n, stride int) {
	moved, segment := int32(n*stride), p.at.segment
	for i := range p.allocations {
		if it := &p.allocations[i]; it.refs > 0 && it.position.segment == segment {
			it.position.repeat += int32(n)
			if it.origin.microbatch >= 0 {
				it.origin.microbatch += moved
			}
		}
	}
	old := p.held
	p.held = make(map[slot]contents, len(old))
	for w, h := range old {
		if h.segment == segment && w.microbatch >= 0 {
			w.microbatch += moved
		}
		p.held[w] = h
	}
	if p.pulled < p.plan.Microbatches {
		p.pulled += int(moved) * len(p.wants)
	}
}
