package placement

import (
	"context"
	"slices"
)

// habit is what a search does how often, in fourths of the times.
type habit struct {
	near  int // choose what is born near, for a stack
	every int // make a stack at every peak where the same happens
	short int // make stacks for few peaks
}

const (
	// maxLaneBuffers is how many buffers a cycle has at most, and maxLanePeriod how long a
	// period is: lanes look at each of its times.
	maxLaneBuffers = 1 << 14
	maxLanePeriod  = 1 << 14
	// fewSizes is how many sizes are few, however few buffers there are.
	fewSizes = 8
	// laneStale is after how many changes without a gain a search begins anew, with
	// another habit; laneDraws how often it draws for a stack or a turn; laneOrders how many
	// orders of a size it tries, and lanePolish how many where only the cycle is too long, and
	// how often.
	laneStale   = 1500
	laneDraws   = 30
	laneOrders  = 3
	lanePolish  = 60
	lanesMethod = "lanes of a size each, and smaller ones in their holes"
)

// lanes lays out a round in lanes, with stacks and turns that it finds by trial: it keeps
// what makes the layout lower, or the excess less. It ends at the capacity. Nil is a round
// that is not for lanes, or none that comes back soon.
func (r *Round) lanes(ctx context.Context, least int, options Options) *RoundLayout {
	if r.Period > maxLanePeriod || len(r.Buffers) == 0 || least*len(r.Buffers) > maxLaneBuffers {
		return nil
	}
	s := &laneSearch{lanes: newLanes(r, least, options.Seed), low: options.Capacity}
	if len(s.sizes) > max(fewSizes, len(r.Buffers)/2) || s.sizes[0] > maxBytes/maxLaneBuffers {
		return nil
	}
	s.laneState = laneState{seed: options.Seed, orders: laneOrders, habit: habit{near: 2, every: 3, short: 3}}
	for left := options.Nodes; left > 0 && ctx.Err() == nil && !s.done(); left -= int64(len(r.Buffers)) {
		s.step()
	}
	if s.found.cycle == 0 {
		return nil
	}
	s.laneState = s.found.laneState
	s.arrange()
	l := &RoundLayout{Layout{Offsets: s.offsets(s.found.cycle), Method: lanesMethod}, s.found.cycle}
	for k, at := range l.Offsets {
		l.Height = max(l.Height, at+r.Buffers[k%len(r.Buffers)].Size)
	}
	return l
}

// laneSearch is a search for stacks and turns.
type laneSearch struct {
	*lanes
	low      int64 // a height that is low enough
	tries    int
	stale    int // changes since the last gain
	now      laneScore
	crowd    []int32 // what is born into an excess in the state that is kept
	polished int     // seeds that were tried since it was low enough
	found    struct {
		laneState
		laneScore
		cycle int // periods; 0 is nothing yet
	}
}

// laneScore is how good lanes are: less is better.
type laneScore struct{ height, excess int64 }

func (a laneScore) less(b laneScore) bool {
	return a.height < b.height || a.height == b.height && a.excess < b.excess
}

// done reports whether a layout is low enough, and its cycle as short as it gets.
func (s *laneSearch) done() bool {
	return s.found.cycle > 0 && s.found.height <= s.low && (s.found.cycle <= 2*s.longest || s.polished >= lanePolish)
}

// step changes something, and takes it back where it is worse.
func (s *laneSearch) step() {
	before := s.laneState.clone()
	s.laneState.orders = laneOrders
	switch {
	case s.tries == 0:
	case s.now.height <= s.low && s.polished < lanePolish:
		s.polished++
		s.laneState.orders = lanePolish
		s.laneState.seed = s.random.Uint64()
	case s.stale >= laneStale:
		s.laneState = laneState{seed: s.random.Uint64(), orders: laneOrders, habit: habit{s.random.IntN(5), s.random.IntN(5), s.random.IntN(5)}}
		s.tries, s.stale = 0, 0
	default:
		s.change()
	}
	resume := s.random.Uint64()
	s.arrange()
	s.source.Seed(resume, 1)
	score := laneScore{s.height, s.excess}
	if cycle := s.cycle * ((s.longest + s.cycle - 1) / s.cycle); cycle*s.own <= maxLaneBuffers &&
		(s.found.cycle == 0 || s.height < s.found.height || s.height == s.found.height && cycle < s.found.cycle) {
		s.found.laneState, s.found.laneScore, s.found.cycle = s.laneState.clone(), score, cycle
	}
	s.stale++
	if s.tries == 0 || score.less(s.now) {
		s.stale = 0
	}
	if s.tries == 0 || !s.now.less(score) {
		s.now, s.crowd = score, append(s.crowd[:0], s.over...)
	} else {
		s.laneState = before
	}
	s.tries++
}

// change adds, takes away or replaces a stack, and sometimes a turn.
func (s *laneSearch) change() {
	if s.random.IntN(5) == 0 {
		s.laneState.seed = s.random.Uint64()
	}
	if s.random.IntN(4) == 0 {
		if n := len(s.turns); n > 0 && s.random.IntN(2) == 0 {
			k := s.random.IntN(n)
			s.turns = slices.Delete(s.turns, k, k+1)
		} else {
			s.addTurn()
		}
	}
	switch n, way := len(s.stacks), s.random.IntN(12); {
	case n == 0 || way < 4:
		s.addStack()
	case way < 8:
		k := s.random.IntN(n)
		s.stacks = slices.Delete(s.stacks, k, k+1)
		if way < 6 {
			s.addStack()
		}
	case way < 10 && len(s.peaks) > 1:
		s.repeat(s.stacks[s.random.IntN(n)])
	}
}

func (s *laneSearch) addTurn() {
	for range laneDraws {
		if t, ok := s.newTurn(s.crowd); ok {
			s.turns = append(s.turns, t)
			return
		}
	}
}

func (s *laneSearch) addStack() {
	for range laneDraws {
		if stack, ok := s.newStack(s.crowd); ok {
			s.stacks = append(s.stacks, stack)
			if s.random.IntN(4) < s.habit.every {
				s.repeat(stack)
			}
			return
		}
	}
}

// repeat adds a stack at the other peaks of the period as well, where the same happens.
func (s *laneSearch) repeat(of stack) {
	for _, p := range s.peaks[1:] {
		if m, ok := s.moved(&of, p-s.peaks[0]); ok {
			s.stacks = append(s.stacks, m)
		}
	}
}
