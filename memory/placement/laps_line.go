package placement

import (
	"cmp"
	"context"
	"slices"
)

const lapsMethod = "in laps, in order of birth"

// laps lays out the buffers in laps.
func (r *race) laps(ctx context.Context) {
	if r.over(ctx) || !r.plain() {
		return
	}
	p := r.grid.problem
	l := newLaps(p, r.grid.spans, nil)
	if l == nil || !l.prepare(p, int32(r.grid.columns), r.height-1) {
		return
	}
	share := r.left / lapsShare * lapsPerNode
	all, limit := l.lowest(p.Buffers, r.grid.bound, r.wanted, r.height-1, func(limit int64) []lap {
		if ctx.Err() != nil || r.left <= 0 {
			return nil
		}
		t := &line{laps: l, bound: r.grid.bound, limit: limit, left: share, sums: make([]int64, l.cuts)}
		t.from(cut{batch: -1}, nil)
		r.left -= (share-t.left)/lapsPerNode + 1
		return t.all
	})
	if all == nil {
		return
	}
	offsets := make([]int64, len(p.Buffers))
	l.fits(all, limit, p.Buffers, func(_ int, x lapBuffer, at int64) { offsets[x.buffer] = at })
	r.offer(offsets, r.grid.height(offsets), lapsMethod)
}

const (
	// lapsPerNode is how many laps are looked at in about a microsecond.
	lapsPerNode = 4
	// lapsShare is the part of what is left that is spent on a limit.
	lapsShare = 32
)

// line looks for laps from the beginning to the end that fit below a limit.
type line struct {
	*laps
	bound, limit int64
	left         int64   // laps that it may look at
	sums         []int64 // by cut: how far the last lap to it had sunk in sum, and 1; 0 is never
	all          []lap   // what it has found, nil if nothing
}

// step is a lap, and how far its batches have sunk.
type step struct {
	lap  lap
	sunk []int64
	sum  int64
}

// from goes on from a cut, with what has sunk least first. It goes to a cut again only if
// less has sunk than before.
func (t *line) from(c cut, before []int64) bool {
	var steps []step
	t.left -= t.follow(c, t.bound, t.limit, func(a lap) {
		if sunk, ok := t.sink(a, before, t.limit, nil); ok {
			steps = append(steps, step{a, sunk, sum(sunk)})
		}
	})
	slices.SortStableFunc(steps, func(x, y step) int {
		return cmp.Or(cmp.Compare(x.sum, y.sum), -cmp.Compare(x.lap.bytes, y.lap.bytes))
	})
	for _, s := range steps {
		end := s.lap.to.batch == len(t.batches)
		if !end {
			n := t.number(s.lap.to)
			if t.left < 0 || t.sums[n] > 0 && t.sums[n] <= s.sum+1 {
				continue
			}
			t.sums[n] = s.sum + 1
		}
		t.all = append(t.all, s.lap)
		if end || t.from(s.lap.to, s.sunk) {
			return true
		}
		if t.all = t.all[:len(t.all)-1]; len(t.all) == 0 {
			t.all = nil
		}
	}
	return false
}

// sum returns how far the last batches of a lap have sunk together.
func sum(all []int64) (n int64) {
	for _, x := range all[:min(len(all), lapAlive)] {
		n += x
	}
	return n
}
