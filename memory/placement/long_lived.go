package placement

import "context"

// longLived lays out only the long-lived buffers, as a ring buffer in order of death. The buffer that
// dies next is then adjacent to the free space, so each death extends the free space, which stays in one
// piece. The short-lived buffers are placed in the free space afterwards, so they leave no holes between
// long-lived ones. This suits a 1F1B rank that keeps its saved tensors, whatever their sizes.
type longLived struct {
	buffers []int32 // the long-lived buffers
	ring    *ring   // has these buffers with time reversed: the last one to die is born first
	bound   int64   // maximum of their live bytes
	pass    int64   // nodes of one pass of the ring over all buffers
	fixed   []int64 // by buffer of the problem, its offset in the ring; a negative number means not fixed
}

const (
	// longLifeDivisor divides the longest lifetime: a buffer that lives longer than the result
	// is long-lived.
	longLifeDivisor = 3
	// longLivedAhead is the number of subsequent buffers that the ring tries to place in space
	// that would otherwise stay unused.
	longLivedAhead = 8
	// longLivedRounds is the number of rounds without a lower layout after which race.longLived gives up.
	longLivedRounds = 16

	longLivedMethod = "long-lived buffers around a ring, in order of death; then larger first, first fit, reordered by excess height"
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
			b.Lower, b.Upper = ^b.Upper, ^b.Lower // negation without overflow
			p.Buffers = append(p.Buffers, b)
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

// layOut lays out the long-lived buffers below a limit; the ring's cursor begins at start. It returns whether
// it succeeded, and the number of nodes that it spent.
func (s *longLived) layOut(ctx context.Context, limit, start int64) (found bool, nodes int64) {
	found = s.ring.layOut(ctx, limit, start, 2*s.pass)
	for k, i := range s.buffers {
		s.fixed[i] = s.ring.offsets[k]
	}
	return found, 2*s.pass - max(s.ring.left, 0)
}

// longLived tries layouts in which long-lived buffers are placed first. Each round varies two
// parameters in steps of 1/1024 of their ranges, in a fixed order that spreads them evenly: the limit
// of the ring, which leaves space above it for the other buffers, and the offset at which the ring
// starts. The rounds may use an eighth of the remaining work, or three quarters once one of them has
// found the lowest layout so far.
func (r *race) longLived(ctx context.Context) {
	if r.done(ctx) || !r.plain() {
		return
	}
	s := newLongLived(r.grid)
	available := r.left
	until := available - available/8
	for turn, improved := int64(0), int64(0); r.left > until && turn-improved <= longLivedRounds && !r.done(ctx); turn++ {
		spread := turn + int64(r.seed%1024)
		limit := r.wanted - (r.wanted-s.bound)/1024*(spread*773%1024)
		found, nodes := s.layOut(ctx, limit, limit/1024*(spread*583%1024))
		if r.left -= nodes; found && r.placeRest(ctx, s.fixed) {
			improved, until = turn, available/4
		}
	}
}

// placeRest places the other buffers around the fixed ones, larger ones first, and reorders them as long
// as that lowers the layout. It reports whether it found a new lowest layout.
func (r *race) placeRest(ctx context.Context, fixed []int64) (improved bool) {
	g := *r.grid
	g.fixed = fixed
	s := newReordering(&g, recipes[0], r.seed)
	for round := 0; round == 0 || s.stale == 0 && !r.done(ctx); round++ {
		r.left -= r.round()
		if height := s.round(ctx, r.taken); height < r.height {
			improved = true
			r.offer(s.offsets, height, longLivedMethod)
		}
	}
	return improved
}
