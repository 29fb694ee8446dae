package placement

import "context"

// lasting lays out what lives long before all else and alone, around a ring, in order of
// death. Those that die first then lie next to the free room, which grows in one piece;
// and what is short-lived is placed later, so that it leaves no holes between what lasts.
// A rank of 1F1B that keeps what it saves is laid out well by it, whatever its sizes.
type lasting struct {
	buffers []int32 // those that live long
	ring    *ring   // of them, backward in time: there they are born in order of death
	bound   int64   // the most of their bytes alive at once
	pass    int64   // nodes of the ring that go once through all
	fixed   []int64 // by buffer of the problem, where it lies on the ring; below 0 is anywhere
}

const (
	// lastingPart is which part of the longest life is a long one.
	lastingPart = 3
	// lastingAhead is among how many next ones the ring looks for one that fits into room
	// that it would leave.
	lastingAhead = 8
	// lastingTurns is after how many turns without a gain it ends.
	lastingTurns = 16

	lastingMethod = "what lives long around a ring, in order of death; then larger first, first fit, reordered by what lay too high"
)

func newLasting(g *grid) *lasting {
	s := &lasting{fixed: make([]int64, len(g.problem.Buffers))}
	var longest uint64
	for i := range g.problem.Buffers {
		longest = max(longest, g.duration(int32(i)))
	}
	p := &Problem{}
	for i, b := range g.problem.Buffers {
		s.fixed[i] = -1
		if g.duration(int32(i)) > longest/lastingPart {
			p.Buffers = append(p.Buffers, b.backward())
			s.buffers = append(s.buffers, int32(i))
		}
	}
	s.ring = newRing(p)
	s.ring.ahead = lastingAhead
	s.bound = p.Bound()
	live := 0
	for _, c := range s.ring.changes {
		if !c.birth {
			live--
			continue
		}
		live++
		s.pass += nodesOf(live)
	}
	return s
}

// backward returns a buffer without gaps as it is where time runs backward.
func (b Buffer) backward() Buffer {
	b.Lower, b.Upper = ^b.Upper, ^b.Lower // like a minus, without overflow
	return b
}

// within lays out what lives long below a limit, the first one at an offset. It says
// whether it found how, and how many nodes it took.
func (s *lasting) within(ctx context.Context, limit, start int64) (found bool, nodes int64) {
	found = s.ring.within(ctx, limit, start, 2*s.pass)
	for k, i := range s.buffers {
		s.fixed[i] = s.ring.offsets[k]
	}
	return found, 2*s.pass - max(s.ring.left, 0)
}

// lasting tries layouts in which long-lived buffers have their places first. It varies
// where the ring begins, and how much room is left above it for what lives less long:
// turn after turn takes other 1024ths, evenly spread. It ends soon where it does not find
// the best layout.
func (r *race) lasting(ctx context.Context) {
	if r.over(ctx) || !r.plain() {
		return
	}
	s := newLasting(r.grid)
	had := r.left
	until := had - had/8
	for turn, lower := int64(0), int64(0); r.left > until && turn-lower <= lastingTurns && !r.over(ctx); turn++ {
		spread := turn + int64(r.seed%1024)
		limit := r.wanted - (r.wanted-s.bound)/1024*(spread*773%1024)
		found, nodes := s.within(ctx, limit, limit/1024*(spread*583%1024))
		if r.left -= nodes; found && r.between(ctx, s.fixed) {
			lower, until = turn, had/4
		}
	}
}

// between places what has no place around the rest, larger first, and again in another
// order while that gains. It reports whether it made the best layout.
func (r *race) between(ctx context.Context, fixed []int64) (lower bool) {
	g := *r.grid
	g.fixed = fixed
	s := newReordering(&g, recipes[0], r.seed)
	for round := 0; round == 0 || s.stale == 0 && !r.over(ctx); round++ {
		r.left -= r.round()
		if height := s.round(ctx, r.taken); height < r.height {
			lower = true
			r.offer(s.offsets, height, lastingMethod)
		}
	}
	return lower
}
