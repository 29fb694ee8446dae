package placement

import (
	"cmp"
	"context"
	"slices"
)

// ring lays out buffers in order of birth, each directly above the one before, and wraps around at a
// limit, like a queue in a ring buffer. The microbatches in flight form such a queue, whatever
// their sizes are. The search keeps a cursor at the end of the last buffer placed, and places the next buffer
// in the first hole (free range that is large enough) after the cursor, wrapping around at the limit. It
// wastes only the space that it passes over because the next buffer does not fit. If a buffer fits
// nowhere, the search goes back to the last buffer that had another hole, and takes that hole.
//
// It does not support gaps.
type ring struct {
	problem  *Problem
	offsets  []int64
	live     []occupant // in order of offset
	changes  []change   // of problem
	limit    int64      // no buffer may end above it
	left     int64      // nodes
	ahead    int        // the number of subsequent births among which fill looks for buffers; 0 turns fill off
	cursor   int64      // the end of the last buffer placed
	branches []branch
	holes    []int64 // scratch: offsets at which the next buffer fits
	wrapped  []int64 // scratch: holes below the cursor
}

// occupant is a live buffer.
type occupant struct {
	extent
	buffer int32
}

// branch is a birth for which there was more than one hole, with the state before it.
type branch struct {
	change int // index in ring.changes
	cursor int64
	live   []occupant
	tried  int // the number of holes tried so far
}

// Limits of the search: the number of branches to which the ring can backtrack, the number of
// holes that it tries at each, and the number of evenly spread offsets at which it starts.
const (
	maxBranches = 256
	maxTried    = 3
	ringStarts  = 6
)

func newRing(p *Problem) *ring {
	return &ring{problem: p, offsets: make([]int64, len(p.Buffers)), changes: p.changes()}
}

// layOut lays out all buffers below a limit, with the cursor at start before the first one. It reports
// whether it succeeded with the given number of nodes, before ctx ended.
func (r *ring) layOut(ctx context.Context, limit, start, nodes int64) bool {
	r.limit, r.left = limit, nodes
	r.live, r.cursor, r.branches = r.live[:0], start, r.branches[:0]
	for at := 0; at < len(r.changes); at++ {
		c := r.changes[at]
		if !c.birth {
			r.end(c.buffer)
			continue
		}
		if r.ahead > 0 && r.holds(c.buffer) {
			continue
		}
		b := &r.problem.Buffers[c.buffer]
		r.find(b)
		if r.left -= nodesOf(len(r.live)); r.left < 0 || ctx.Err() != nil {
			return false
		}
		switch {
		case len(r.holes) == 0:
			var found bool
			if at, found = r.backtrack(); !found {
				return false
			}
			continue
		case len(r.holes) > 1:
			r.remember(at)
		}
		if r.holes[0] != alignUp(r.cursor, b.Align) {
			r.fill(at + 1)
		}
		r.put(c.buffer, r.holes[0])
	}
	return true
}

// nodesOf returns the cost of examining live buffers, in nodes.
func nodesOf(live int) int64 { return 1 + int64(live/64) }

// find sets holes to the offsets at which a buffer fits: first those at or above the cursor, then those
// below it.
func (r *ring) find(b *Buffer) {
	r.holes, r.wrapped = r.holes[:0], r.wrapped[:0]
	free := func(lower, upper int64) {
		if lower < r.cursor && r.cursor < upper {
			if at := alignUp(lower, b.Align); at <= r.cursor-b.Size {
				r.wrapped = append(r.wrapped, at)
			}
			lower = r.cursor
		}
		switch at := alignUp(lower, b.Align); {
		case at > upper-b.Size:
		case lower < r.cursor:
			r.wrapped = append(r.wrapped, at)
		default:
			r.holes = append(r.holes, at)
		}
	}
	from := int64(0)
	for _, o := range r.live {
		if o.lower > from {
			free(from, o.lower)
		}
		from = o.upper
	}
	free(from, r.limit)
	r.holes = append(r.holes, r.wrapped...)
}

// put places a buffer, and moves the cursor to its end.
func (r *ring) put(buffer int32, at int64) {
	r.offsets[buffer], r.cursor = at, at+r.problem.Buffers[buffer].Size
	r.live = slices.Insert(r.live, r.index(at), occupant{extent{at, r.cursor}, buffer})
}

// index returns the index of the first live buffer at or above an offset, or len(r.live).
func (r *ring) index(at int64) int {
	k, _ := slices.BinarySearchFunc(r.live, at, func(o occupant, at int64) int { return cmp.Compare(o.lower, at) })
	return k
}

// fill fills the space after the cursor, which is too small for the next buffer, with buffers
// that are born soon after. They occupy their space immediately, although they are not born yet, so that
// no other buffer is placed there.
func (r *ring) fill(from int) {
	end := r.limit
	if k := r.index(r.cursor); k < len(r.live) {
		end = r.live[k].lower
	}
	for {
		best, size := int32(-1), int64(0)
		for births, k := 0, from; births < r.ahead && k < len(r.changes); k++ {
			if c := r.changes[k]; c.birth {
				births++
				b := &r.problem.Buffers[c.buffer]
				if b.Size > size && alignUp(r.cursor, b.Align) <= end-b.Size && !r.holds(c.buffer) {
					best, size = c.buffer, b.Size
				}
			}
		}
		if best < 0 {
			return
		}
		r.left--
		r.put(best, alignUp(r.cursor, r.problem.Buffers[best].Align))
	}
}

// holds reports whether a buffer is in live. Before its birth this means that fill has placed it.
func (r *ring) holds(buffer int32) bool {
	k := r.index(r.offsets[buffer])
	return k < len(r.live) && r.live[k].buffer == buffer
}

// end removes a buffer that dies. If it was the last one placed, the cursor moves back to its start.
func (r *ring) end(buffer int32) {
	k := r.index(r.offsets[buffer])
	if o := r.live[k]; o.upper == r.cursor {
		r.cursor = o.lower
	}
	r.live = slices.Delete(r.live, k, k+1)
}

// remember records a birth at which the first of several holes is taken.
func (r *ring) remember(at int) {
	if len(r.branches) == maxBranches { // discard the older half
		half := slices.Clone(r.branches[:maxBranches/2])
		r.branches = append(append(r.branches[:0], r.branches[maxBranches/2:]...), half...)[:maxBranches/2]
	}
	r.branches = slices.Grow(r.branches, 1)[:len(r.branches)+1]
	t := &r.branches[len(r.branches)-1]
	t.change, t.cursor, t.live, t.tried = at, r.cursor, append(t.live[:0], r.live...), 1
}

// backtrack goes back to the last birth with an untried hole, and takes that hole. It returns the index of
// that birth in changes. found is false if no recorded birth has an untried hole.
func (r *ring) backtrack() (change int, found bool) {
	for len(r.branches) > 0 {
		t := &r.branches[len(r.branches)-1]
		r.cursor, r.live = t.cursor, append(r.live[:0], t.live...)
		buffer := r.changes[t.change].buffer
		r.find(&r.problem.Buffers[buffer])
		if t.tried < min(maxTried, len(r.holes)) {
			r.put(buffer, r.holes[t.tried])
			t.tried++
			return t.change, true
		}
		r.branches = r.branches[:len(r.branches)-1]
	}
	return 0, false
}
