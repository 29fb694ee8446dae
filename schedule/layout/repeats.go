package layout

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Action returns the action at a place of the rank's layout, in the first repeat that has the place. It
// returns false if no action is there, as at the place of step end. The program is the rank's program of the
// flat plan.
func (r *RankLayout) Action(program []schedule.Segment, place int) (schedule.Action, bool) {
	for i, s := range r.Layout.Segments {
		offset := place - s.First
		if phases := s.Lead + s.Cycle + s.Tail; offset < 0 || offset >= phases*s.Body {
			continue
		}
		repeat := offset / s.Body
		if repeat >= s.Lead+s.Cycle {
			repeat += s.Repeat - s.Lead - s.Cycle - s.Tail
		}
		return program[i].Body[offset%s.Body].Shift(repeat * program[i].Stride), true
	}
	return 0, false
}

// stepEnd returns the place after the segments that were traced: in a whole trace, this is the place of step end.
func (t *trace) stepEnd() int {
	if len(t.segments) == 0 {
		return 0
	}
	last := &t.segments[len(t.segments)-1]
	return last.First + (last.Lead+last.Cycle+last.Tail)*last.Body
}

// place returns the place of a position.
func (t *trace) place(at position) int {
	if int(at.segment) == len(t.segments) {
		return t.stepEnd()
	}
	return t.segments[at.segment].Base(int(at.repeat)) + int(at.index)
}

// A recurrence finds the repeats of a segment that need not be traced, because they equal the
// previous ones. The repeats are divided into a lead of repeats that differ, one cycle of equal
// repeats, the skipped repeats, the rest of the equal repeats, and a tail of repeats that differ again.
//
//  1. After each repeat of the lead, the state of the rank is compared with the state after the
//     previous repeat, with microbatches and births relative to the repeat. If the two are equal, the
//     repeat led from a state back to the same state, and the cycle begins with this repeat. The changes
//     of a repeat are determined by the state before it, so by induction all later repeats make the same
//     changes, until the source has fewer entries left than a repeat pulls. The state needs no sizes:
//     with one shape class, the slot of an allocation and its index there determine its size.
//  2. The cycle, which is at least as long as the longest life, is traced. Then a multiple of it is
//     skipped. So skipping is exact: apart from the numbers of microbatches, the trace contains every set
//     of live buffers that occurs in the whole program.
//  3. Of the remaining repeats, the first one whose changes have a different hash begins the tail. The
//     equal repeats before it use the cycle's places.
//
// In the state, slots that an earlier segment filled have absolute microbatches, so step 1 needs an
// argument that no later repeat uses one of them. It follows from the validity of the plan. As the states
// are equal, the repeat has emptied no such slot: every slot that it used had been filled by the body.
// The same holds for later repeats: if one of them used a slot that an earlier segment had filled, that
// slot would be filled twice, but a valid plan runs each action only once.
type recurrence struct {
	before    []uint64 // the state after the previous repeat; nil at the beginning
	liveCount int      // number of live allocations after the previous repeat
	hash      uint64   // of the changes of this repeat
	cycleHash uint64   // of the changes of the first repeat of the cycle
	longest   int      // the longest life among the allocations that died in this repeat, in repeats, rounded up
	skipped   bool
}

// ramp reports whether a segment is too short to skip any of its repeats: it has fewer than 4 repeats, or
// counts as part of the warm-up or the drain because it has fewer than longestRamp microbatches and fewer
// than an eighth of the plan's.
func (t *trace) ramp(segment *schedule.Segment) bool {
	return segment.Repeat < 4 || segment.Repeat*max(segment.Stride, -segment.Stride) < min(t.plan.Microbatches/8, longestRamp)
}

const longestRamp = 1 << 12

// record adds the latest change to the hash of the repeat, and to the longest life if it is a death.
func (c *recurrence) record(t *trace, change int32) {
	if change >= 0 {
		it := &t.allocations[change]
		c.hash = mix(c.hash, uint64(it.position.index)<<32|uint64(it.ordinal), uint64(it.bytes)<<8|uint64(it.class))
		return
	}
	it := &t.allocations[^change]
	c.hash = mix(c.hash, t.id(it, ^change), 1)
	if it.position.segment == t.at.segment {
		// In repeats, rounded up: one more if the death comes later in its repeat than the birth did.
		age := int(t.at.repeat - it.position.repeat)
		if it.death-t.repeatStart > it.inRepeat {
			age++
		}
		c.longest = max(c.longest, age)
	}
}

func mix(hash uint64, words ...uint64) uint64 {
	for _, w := range words {
		hash = (hash ^ w) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	return hash
}

// skip returns the number of repeats to skip after repeat r, and moves the state of the rank past them.
func (t *trace) skip(segment *schedule.Segment, r int) int {
	c, places := t.recurrence, &t.segments[t.at.segment]
	hash := c.hash
	c.hash = 0
	if places.Cycle == 0 {
		var state []uint64
		live := t.liveCount()
		if r == 0 || live == c.liveCount { // otherwise the states differ
			state = t.state(r * segment.Stride)
		}
		same := len(c.before) > 0 && slices.Equal(c.before, state)
		c.before, c.liveCount = state, live
		if !same || t.entriesLeft(segment.Stride) < 1 {
			c.longest = 0
			return 0
		}
		c.cycleHash = hash
		places.Lead, places.Cycle = r, max(c.longest, 1)
		if rotation := t.rotations[int(t.at.segment)]; rotation != nil {
			places.Cycle = rotation.cycle
		}
	}
	if places.Tail > 0 || hash != c.cycleHash {
		places.Tail++
		return 0
	}
	if c.skipped || r+1 < max(places.Lead+places.Cycle, int(t.kept*float64(segment.Repeat))) {
		return 0
	}
	c.skipped = true
	n := min(segment.Repeat-1-r, t.entriesLeft(segment.Stride)) / places.Cycle * places.Cycle
	t.shiftRepeats(n, segment.Stride)
	return n
}

// entriesLeft returns the number of further repeats that can pull as many entries as the previous one did. This is the
// number of microbatches if entries set no limit, and 0 if the stride is negative.
func (t *trace) entriesLeft(stride int) int {
	if t.pulled == t.plan.Microbatches || stride == 0 {
		return t.plan.Microbatches
	}
	if stride < 0 {
		return 0
	}
	return (t.plan.Microbatches - t.pulled) / (stride * len(t.wants))
}

// liveCount returns the number of live allocations.
func (t *trace) liveCount() int {
	dead := len(t.log) - len(t.allocations) // every change that is not a birth
	return len(t.allocations) - dead
}

// id identifies an allocation by its birth. For a birth in this segment, the repeat is counted relative
// to the current one, so that the same birth one repeat later has the same id by then.
func (t *trace) id(it *allocation, number int32) uint64 {
	if it.position.segment != t.at.segment {
		return uint64(number)<<1 | 1
	}
	return uint64(t.at.repeat-it.position.repeat)<<44 | uint64(it.position.index)<<22 | uint64(it.ordinal)<<1
}

// state returns everything that determines later changes: the next entry to pull, and the
// allocations in every slot with their references. For slots that were filled in this segment,
// microbatches are relative to shift; for older slots they are absolute.
func (t *trace) state(shift int) []uint64 {
	relative := func(segment, microbatch int32) uint64 {
		if segment == t.at.segment && microbatch >= 0 {
			return uint64(int64(microbatch)-int64(shift))<<1 | 1
		}
		return uint64(int64(microbatch)) << 1
	}
	state := []uint64{uint64(t.pulled-shift*len(t.wants))<<1 | 1}
	if t.pulled == t.plan.Microbatches {
		state[0] = 0
	}
	type keyed struct {
		slot, microbatch uint64
		contents
	}
	keys := make([]keyed, 0, len(t.held))
	for w, h := range t.held {
		keys = append(keys, keyed{uint64(w.kind)<<32 | uint64(uint32(w.stage)), relative(h.segment, w.microbatch), h})
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.microbatch, b.microbatch))
	})
	for _, k := range keys {
		state = append(state, k.slot, k.microbatch, k.wanted, uint64(len(k.allocations)))
		for _, i := range k.allocations {
			switch {
			case i < 0:
				state = append(state, uint64(int64(i)))
			case t.allocations[i].refs == 0:
				state = append(state, 0)
			default:
				state = append(state, t.id(&t.allocations[i], i), uint64(t.allocations[i].refs))
			}
		}
	}
	return state
}

// shiftRepeats adds n repeats to the live allocations and the slots of this segment, and to the next
// entry.
func (t *trace) shiftRepeats(n, stride int) {
	moved, segment := int32(n*stride), t.at.segment
	for i := range t.allocations {
		if it := &t.allocations[i]; it.refs > 0 && it.position.segment == segment {
			it.position.repeat += int32(n)
			if it.origin.microbatch >= 0 {
				it.origin.microbatch += moved
			}
		}
	}
	old := t.held
	t.held = make(map[slot]contents, len(old))
	for w, h := range old {
		if h.segment == segment && w.microbatch >= 0 {
			w.microbatch += moved
		}
		t.held[w] = h
	}
	if t.pulled < t.plan.Microbatches {
		t.pulled += int(moved) * len(t.wants)
	}
}
