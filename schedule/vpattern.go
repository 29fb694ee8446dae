package schedule

import (
	"slices"

	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// The steps of a microbatch on a rank of a V, in order: the forward of the rank's first stage, the
// forward and input gradient of its second stage, the input gradient of the first stage, and the
// weight gradients of both stages.
const (
	vF0 = iota
	vF1
	vI1
	vI0
	vW1
	vW0
	vSteps
)

// vMost is the maximum number of ranks of a V that follows a pattern. It is limited because the time to
// make the plan grows with the cube of this number.
const vMost = 512

// vPeriod is the number of slots between a step of one microbatch and the same step of the next.
const vPeriod = vSteps

// followV returns the programs of the ranks of a V that follow a pattern as early as possible: in
// each slot, a rank runs the first step of its pattern that is ready. Thus a step may overtake others,
// but only if the rank never has more than inFlight microbatches in flight, counting each stage
// separately. After its last F0, a rank runs a W only if no other step is ready.
//
// The pattern specifies the slots in which the first F0, F1, I1 and I0 of a rank begin. Each step of
// the next microbatch begins one period later, and every W takes the first free slot after its I. A
// pattern must be valid without overtaking. Then the earliest pending step in the patterns of all
// ranks is always ready, so there is no deadlock.
//
// If the configuration of all ranks equals the configuration in an earlier period, except that the
// microbatches are later ones, the ranks repeat the period until the last microbatches. These periods
// are skipped.
func (p Params) followV(inFlight int, pattern func(rank int) [4]int) [][]Segment {
	ranks := p.Placement.Ranks
	v := &vee{engine: repeats.NewEngine(&repeats.Sets{}), ranks: make([]vRank, ranks), microbatches: p.Microbatches, inFlight: inFlight}
	for r := range v.ranks {
		s0, s1 := r, 2*ranks-1-r
		v.ranks[r] = vRank{
			pattern: vPattern(pattern(r)),
			actions: [vSteps]Action{NewAction(F, s0, 0), NewAction(F, s1, 0), NewAction(I, s1, 0), NewAction(I, s0, 0), NewAction(W, s1, 0), NewAction(W, s0, 0)},
			builder: newCountingBuilder(p, s0, s1),
		}
	}
	for v.engine.Begin(v); v.runPeriod(); v.engine.Begin(v) {
		again := v.engine.End(v)
		v.engine.Stop()
		for r := range v.ranks {
			me := &v.ranks[r]
			me.builder.write(1+int(again), me.word...)
			me.word = me.word[:0]
		}
	}
	programs := make([][]Segment, ranks)
	for r := range v.ranks {
		programs[r] = v.ranks[r].builder.Program()
	}
	return programs
}

// vPattern returns the step in each slot of a rank, or -1 for an empty slot. starts holds the slots in
// which the first F0, F1, I1 and I0 begin. The last period of the result repeats indefinitely.
func vPattern(starts [4]int) []int {
	pattern := slices.Repeat([]int{-1}, starts[vI0]+2*vPeriod)
	var waiting []int
	for slot := range pattern {
		for step, start := range starts {
			if slot >= start && (slot-start)%vPeriod == 0 {
				pattern[slot] = step
			}
		}
		switch step := pattern[slot]; {
		case step == vI1:
			waiting = append(waiting, vW1)
		case step == vI0:
			waiting = append(waiting, vW0)
		case step < 0 && len(waiting) > 0:
			pattern[slot], waiting = waiting[0], waiting[1:]
		}
	}
	return pattern
}

// vee is the configuration of the ranks of a V. As in greedy, the ranks choose their actions.
type vee struct {
	engine       repeats.Engine
	ranks        []vRank
	microbatches int
	inFlight     int
}

// vRank is the configuration of one rank.
type vRank struct {
	pattern []int
	actions [vSteps]Action // by step
	builder *countingBuilder

	slot   int         // the steps of the pattern before this slot are done or in the queue
	queue  []vStep     // the next steps, in the order of the pattern
	queued [vSteps]int // by step: the number of microbatches that are done or in the queue
	done   [vSteps]int // by step: the number of microbatches that are done
	choice int         // the index in the queue of the step that runs now, or -1
	word   []Action    // the actions of this period
}

// vStep is a step of one microbatch.
type vStep struct{ step, mb int }

// held returns the amount by which a step changes the number of microbatches in flight, counting each
// stage separately.
func (s vStep) held() int {
	switch s.step {
	case vF0, vF1:
		return 1
	case vW1, vW0:
		return -1
	}
	return 0
}

// runPeriod runs every rank for the slots of one period. It reports whether any rank has run a step.
func (v *vee) runPeriod() (ran bool) {
	for range vPeriod {
		for r := range v.ranks {
			v.ranks[r].fill(v.microbatches)
			v.ranks[r].choice = v.choose(r)
		}
		for r := range v.ranks {
			if me := &v.ranks[r]; me.choice >= 0 {
				me.run()
				ran = true
			}
		}
	}
	return ran
}

// fill puts the next microbatch of every step into the queue. No other microbatch can be ready.
func (r *vRank) fill(microbatches int) {
	for step := range vSteps {
		for r.queued[step] == r.done[step] && r.done[step] < microbatches {
			if next := r.pattern[r.at()]; next >= 0 && r.queued[next] < microbatches {
				r.queue = append(r.queue, vStep{next, r.queued[next]})
				r.queued[next]++
			}
			r.slot++
		}
	}
}

// at returns the index of the current slot in r.pattern, whose last vPeriod entries repeat.
func (r *vRank) at() int {
	if over := r.slot - len(r.pattern); over >= 0 {
		return len(r.pattern) - vPeriod + over%vPeriod
	}
	return r.slot
}

// choose returns the index in the rank's queue of the step that the rank runs in this slot, or -1 if
// no step can run.
func (v *vee) choose(rank int) int {
	me := &v.ranks[rank]
	var ready [vSteps]bool
	unseen := 0
	for step := range vSteps {
		if ready[step] = v.ready(rank, step); ready[step] {
			unseen++
		}
	}

	weight := -1
	live := me.done[vF0] + me.done[vF1] - me.done[vW1] - me.done[vW0]
	most := live // the maximum in flight if the queue runs up to this step
	for i := 0; unseen > 0; i++ {
		next := me.queue[i]
		if ready[next.step] && next.mb == me.done[next.step] {
			unseen--
			switch {
			case next.held() > 0 && most == v.inFlight:
			case next.held() < 0 && me.done[vF0] == v.microbatches:
				if weight < 0 {
					weight = i
				}
			default:
				return i
			}
		}
		live += next.held()
		most = max(most, live)
	}
	return weight
}

// ready reports whether the dependencies of a step's next microbatch are done.
func (v *vee) ready(rank, step int) bool {
	mb := v.ranks[rank].done[step]
	done := func(rank, step int) bool { return v.ranks[rank].done[step] > mb }
	first, last := rank == 0, rank == len(v.ranks)-1
	switch {
	case mb == v.microbatches:
		return false
	case step == vF0:
		return first || done(rank-1, vF0)
	case step == vF1:
		return last && done(rank, vF0) || !last && done(rank+1, vF1)
	case step == vI1:
		return first && done(rank, vF1) || !first && done(rank-1, vI1)
	case step == vI0:
		return last && done(rank, vI1) || !last && done(rank+1, vI0)
	case step == vW1:
		return done(rank, vI1)
	default:
		return done(rank, vI0)
	}
}

// run runs the chosen step.
func (r *vRank) run() {
	step := r.queue[r.choice].step
	r.queue = slices.Delete(r.queue, r.choice, r.choice+1)
	r.done[step]++
	r.word = append(r.word, r.actions[step])
}

// State adds the configuration: the slots of all ranks, their queues, and the completed steps.
func (v *vee) State(s *repeats.State) {
	for r := range v.ranks {
		me := &v.ranks[r]
		if !s.Fixed(int64(me.at())) || !s.Fixed(int64(len(me.queue))) {
			return
		}
		for _, next := range me.queue {
			if !s.Fixed(int64(next.step)) || !s.Moving(int64(next.mb)) {
				return
			}
		}
		for step := range vSteps {
			if !s.Moving(int64(me.queued[step])) || !s.Moving(int64(me.done[step])) {
				return
			}
		}
	}
}

// Moves returns a stride of 1, and the number of periods that can be skipped, if every step has advanced
// by one microbatch. Otherwise it returns zeros.
func (v *vee) Moves(by []int64) (stride, most int64) {
	if slices.ContainsFunc(by, func(n int64) bool { return n != 1 }) {
		return 0, 0
	}
	more := v.microbatches
	for r := range v.ranks {
		more = min(more, v.microbatches-slices.Max(v.ranks[r].queued[:]))
	}
	return 1, int64(more)
}

// Skip advances the ranks by n periods.
func (v *vee) Skip(n int64, _ []int64) {
	for r := range v.ranks {
		me := &v.ranks[r]
		me.slot += int(n) * vPeriod
		for step := range vSteps {
			me.queued[step] += int(n)
			me.done[step] += int(n)
		}
		for i := range me.queue {
			me.queue[i].mb += int(n)
		}
	}
}
