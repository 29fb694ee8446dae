package placement

import "context"

// longLived lays out what lives long before all else and alone, around a ring, in order of
// death. Those that die first then lie next to the free room, which grows in one piece;
// and what is short-lived is placed later, so that it leaves no holes between what lasts.
// A rank of 1F1B that keeps what it saves is laid out well by it, whatever its sizes.
type longLived struct {
	buffers []int32 // those that live long
	ring    *ring   // of them, backward in time: there they are born in order of death
	bound   int64   // the most of their bytes alive at once
	pass    int64   // nodes of the ring that go once through all
	fixed   []int64 // by buffer of the problem, where it lies on the ring; below 0 is anywhere
}

const (
	// longLifeDivisor is which part of the longest life is a long one.
	longLifeDivisor = 3
	// longLivedAhead is among how many next ones the ring looks for one that fits into room
	// that it would leave.
	longLivedAhead = 8
	// longLivedRounds is after how many turns without a gain it ends.
	longLivedRounds = 16

	longLivedMethod = "what lives long around a ring, in order of death; then larger first, first fit, reordered by what lay too high"
)

func newLongLived(g *grid) *longLived {
	s := &longLived{fixed: make([]int64, len(g.problem.Buffers))}
	var longest uint64
	for i := range g.problem.Buffers {
		longest = max(longest, g.duration(int32(i)))
	}
	p := &Problem{}
	for i, b := range g.problem.Buffers {
		s.fixed[i] = -1
		if g.duration(int32(i)) > longest/longLifeDivisor {
			p.Buffers = append(p.Buffers, b.backward())
			s.buffers = append(s.buffers, int32(i))
		}
	}
	s.ring = newRing(p)
	s.ring.ahead = longLivedAhead
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

// layOut lays out what lives long below a limit, the first one at an offset. It says
// whether it found how, and how many nodes it took.
func (s *longLived) layOut(ctx context.Context, limit, start int64) (found bool, nodes int64) {
	found = s.ring.layOut(ctx, limit, start, 2*s.pass)
	for k, i := range s.buffers {
		s.fixed[i] = s.ring.offsets[k]
	}
	return found, 2*s.pass - max(s.ring.left, 0)
}

// longLived tries layouts in which long-lived buffers have their places first. It varies
// where the ring begins, and how much room is left above it for what lives less long:
// turn after turn takes other 1024ths, evenly spread. It ends soon where it does not find
// the best layout.
func (r *race) longLived(ctx context.Context) {
	if r.done(ctx) || !r.plain() {
		return
	}
	s := newLongLived(r.grid)
	had := r.left
	until := had - had/8
	for turn, lower := int64(0), int64(0); r.left > until && turn-lower <= longLivedRounds && !r.done(ctx); turn++ {
		spread := turn + int64(r.seed%1024)
		limit := r.wanted - (r.wanted-s.bound)/1024*(spread*773%1024)
		found, nodes := s.layOut(ctx, limit, limit/1024*(spread*583%1024))
		if r.left -= nodes; found && r.placeRest(ctx, s.fixed) {
			lower, until = turn, had/4
		}
	}
}

// placeRest places what has no place around the rest, larger first, and again in another
// order while that gains. It reports whether it made the best layout.
func (r *race) placeRest(ctx context.Context, fixed []int64) (lower bool) {
	g := *r.grid
	g.fixed = fixed
	s := newReordering(&g, recipes[0], r.seed)
	for round := 0; round == 0 || s.stale == 0 && !r.done(ctx); round++ {
		r.left -= r.round()
		if height := s.round(ctx, r.taken); height < r.height {
			lower = true
			r.offer(s.offsets, height, longLivedMethod)
		}
	}
	return lower
}
