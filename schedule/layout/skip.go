package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// A skipper skips the repeats of a segment that equal those before them. After each repeat
// it compares what the rank holds with what it held after the previous one. If the two
// differ only in the numbers of microbatches, shifted by the stride, all further repeats do
// the same as this one, because nothing else determines a repeat. This ends when entries run
// out: the source gives one entry per microbatch for each copy of the model. So skipping is
// exact: the played program has every set of live buffers that the whole program has.
type skipper struct {
	before    []uint64 // the state after the last repeat; nil at the beginning
	state     []uint64
	alive     int    // number of items after the last repeat
	sum       uint64 // hash of the changes of this repeat
	steady    uint64 // hash of the changes of each repeat from the lead on
	cycle     int    // the longest life among the items that died in this repeat, in repeats
	skipped   bool
	rotations map[int]*rotation // by segment, with cycles that replace the longest life
}

// longestRamp is the largest number of microbatches of a segment that belongs to the warm-up
// or the drain of a plan with many more.
const longestRamp = 1 << 12

// repeats counts the repeats of a segment: a lead of repeats that differ, a cycle of equal
// repeats, the skipped repeats, and a tail of repeats that differ again. Without a cycle all
// repeats are the lead.
type repeats struct{ lead, cycle, skipped, tail int }

// enter begins a segment.
func (s *skipper) enter() {
	*s = skipper{before: s.before[:0], state: s.state[:0], rotations: s.rotations}
}

// note adds a change to the hash of the repeat, and updates the longest life.
func (s *skipper) note(p *player, change int32) {
	if change >= 0 {
		it := &p.items[change]
		s.sum = mix(s.sum, uint64(it.place.index)<<32|uint64(it.ordinal), uint64(it.bytes)<<8|uint64(it.class))
		return
	}
	it := &p.items[^change]
	s.sum = mix(s.sum, p.id(it, ^change), 1)
	if it.place.segment == p.at.segment {
		// Its successor in the cycle is born at the same change of its repeat.
		age := int(p.at.repeat - it.place.repeat)
		if p.count-1-p.begin > it.since {
			age++
		}
		s.cycle = max(s.cycle, age)
	}
}

func mix(sum uint64, words ...uint64) uint64 {
	for _, w := range words {
		sum = (sum ^ w) * 0x9e3779b97f4a7c15
		sum ^= sum >> 32
	}
	return sum
}

// ended compares what is held after a repeat, and returns the number of repeats to skip.
func (s *skipper) ended(p *player, segment *schedule.Segment, r int) int {
	sum := s.sum
	s.sum = 0
	span := &p.spans[p.at.segment]
	if span.cycle == 0 {
		if segment.Repeat < 4 || segment.Repeat*max(segment.Stride, -segment.Stride) < min(p.plan.Microbatches/8, longestRamp) {
			return 0 // skipping in a ramp gains nothing
		}
		s.state = s.state[:0]
		if alive := p.alive(); r == 0 || alive == s.alive { // otherwise it cannot be equal
			s.state = p.state(s.state, r*segment.Stride)
		}
		s.alive = p.alive()
		same := len(s.before) > 0 && slices.Equal(s.before, s.state)
		s.before, s.state = s.state, s.before
		if !same || p.entriesLeft(segment.Stride) < 1 {
			s.cycle = 0
			return 0
		}
		s.steady = sum
		span.lead, span.cycle = r, max(s.cycle, 1)
		if r := s.rotations[int(p.at.segment)]; r != nil {
			span.cycle = r.cycle
		}
	}
	if span.tail > 0 || sum != s.steady {
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

// entriesLeft returns how many more repeats can pull entries from the source as the last one
// did.
func (p *player) entriesLeft(stride int) int {
	if p.pulled == p.plan.Microbatches || stride == 0 {
		return p.plan.Microbatches
	}
	if stride < 0 {
		return 0
	}
	return (p.plan.Microbatches - p.pulled) / (stride * len(p.wants))
}

// alive returns the number of live items.
func (p *player) alive() int {
	dead := int(p.count) - len(p.items) // every change that is not a birth
	return len(p.items) - dead
}

// id names an item by its birth, relative to the current repeat within a segment, so that
// its counterpart in the next repeat has the same id.
func (p *player) id(it *item, number int32) uint64 {
	if it.place.segment != p.at.segment {
		return uint64(number)<<1 | 1
	}
	return uint64(p.at.repeat-it.place.repeat)<<44 | uint64(it.place.index)<<22 | uint64(it.ordinal)<<1
}

// state appends everything that determines later actions. Microbatches and repeats of this
// segment are relative to the current ones.
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
		where, microbatch uint64
		contents
	}
	keys := make([]keyed, 0, len(p.held))
	for w, h := range p.held {
		keys = append(keys, keyed{uint64(w.place)<<32 | uint64(uint32(w.stage)), relative(h.segment, w.microbatch), h})
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.where, b.where), cmp.Compare(a.microbatch, b.microbatch))
	})
	for _, k := range keys {
		to = append(to, k.where, k.microbatch, k.wanted, uint64(len(k.items)))
		for _, i := range k.items {
			switch {
			case i < 0:
				to = append(to, uint64(int64(i)))
			case p.items[i].refs == 0:
				to = append(to, 0)
			default:
				to = append(to, p.id(&p.items[i], i), uint64(p.items[i].refs))
			}
		}
	}
	return to
}

// shiftRepeats shifts what began in this segment by n repeats.
func (p *player) shiftRepeats(n, stride int) {
	moved, segment := int32(n*stride), p.at.segment
	for i := range p.items {
		if it := &p.items[i]; it.refs > 0 && it.place.segment == segment {
			it.place.repeat += int32(n)
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
