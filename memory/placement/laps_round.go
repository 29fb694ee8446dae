package placement

import (
	"cmp"
	"context"
	"slices"
)

const (
	// lapPeriods is how many periods laps of a round may take until they come back.
	lapPeriods = 64
	// lapTimes is how often all laps of a round are gone through, and lapOften after how
	// often it is looked whether some come back.
	lapTimes, lapOften = 128, 8
	// lapLaps is how many laps of a round are gone through.
	lapLaps = 1 << 20
	// lapPart is the part of the bound that a round in laps is above it at most.
	lapPart = 16
)

// laps lays out a round in laps that come back. It returns nil where it finds none. Lives
// is how many periods a buffer lives at most.
func (r *Round) laps(ctx context.Context, lives int, options Options) *RoundLayout {
	if lives > lapAlive || len(r.Buffers) > loopBuffers {
		return nil
	}
	l, columns, bound := r.batches(lives)
	if l == nil || !l.prepare(&Problem{r.Buffers}, columns, bound+bound/lapPart) {
		return nil
	}
	wanted, left := max(bound, options.Capacity), options.Nodes*lapsPerNode
	all, limit := l.lowest(r.Buffers, bound, wanted, wanted+bound/lapPart, func(limit int64) []lap {
		if left < 0 || ctx.Err() != nil {
			return nil
		}
		found, work := l.around(r, bound, limit, left)
		left -= work
		return found
	})
	if all == nil {
		return nil
	}
	n := len(l.batches)
	laid := &RoundLayout{Cycle: (all[len(all)-1].to.batch - all[0].from.batch) / n, Layout: Layout{Method: lapsMethod + ", that come back"}}
	laid.Offsets = make([]int64, laid.Cycle*len(r.Buffers))
	l.fits(all, limit, r.Buffers, func(k int, x lapBuffer, at int64) {
		period := (k/n + laid.Cycle - int(x.period)) % laid.Cycle
		laid.Offsets[period*len(r.Buffers)+int(x.buffer)] = at
	})
	for i, at := range laid.Offsets {
		laid.Height = max(laid.Height, at+r.Buffers[i%len(r.Buffers)].Size)
	}
	return laid
}

// batches returns those of a period of a round, the columns of a period, and the most
// bytes alive at once.
func (r *Round) batches(lives int) (l *laps, columns int32, bound int64) {
	p := &Problem{}
	for k := range 2*int64(lives) + 3 {
		for _, b := range r.Buffers {
			b.Lower, b.Upper = b.Lower+k*r.Period, b.Upper+k*r.Period
			p.Buffers = append(p.Buffers, b)
		}
	}
	g := newGrid(p)
	spans := g.spans[(lives+1)*len(r.Buffers):] // of a period at which all is as it always is
	first := slices.MinFunc(spans[:len(r.Buffers)], func(x, y span) int { return cmp.Compare(x.lower, y.lower) }).lower
	columns = spans[len(r.Buffers)].lower - spans[0].lower
	own, periods := make([]span, len(r.Buffers)), make([]int32, len(r.Buffers))
	for i := range own {
		periods[i] = (spans[i].lower - first) / columns
		from := first + periods[i]*columns
		own[i] = span{spans[i].lower - from, spans[i].upper - from}
	}
	return newLaps(&Problem{r.Buffers}, own, periods), columns, g.bound
}

// reach is a way to a cut.
type reach struct {
	lap  lap
	sunk []int64 // of that lap; none is no way
	sum  int64   // of sunk
}

// offer takes a lap if it has sunk less.
func (w *reach) offer(a lap, sunk []int64) {
	if n := sum(sunk); len(w.sunk) == 0 || n < w.sum {
		w.lap, w.sum, w.sunk = a, n, append(w.sunk[:0], sunk[:min(len(sunk), lapAlive)]...)
	}
}

// around returns laps of a round that fit below a limit and come back, nil where it finds
// none, and how much work it was, about most. It goes on from all cuts, again and again:
// of the ways to a cut it keeps the one whose last lap has sunk least. Ways that have
// always been found lead back to where they have been before.
func (l *laps) around(r *Round, bound, limit, most int64) (found []lap, work int64) {
	var all []lap
	for k := range l.batches {
		for n := 1; n < len(l.batches[k].shares); n++ {
			work += l.follow(cut{k, n}, bound, limit, func(a lap) { all = append(all, a) })
			if len(all) > lapLaps {
				return nil, work
			}
		}
	}
	was, ways := make([]reach, l.cuts), make([]reach, l.cuts)
	for at := range was {
		was[at].sunk = make([]int64, lapAlive)
	}
	var sunk []int64
	for turn := 1; turn <= lapTimes && work < most; turn++ {
		for at := range ways {
			ways[at].sunk = ways[at].sunk[:0]
		}
		some := false
		for _, a := range all {
			before := was[l.number(a.from)].sunk
			if len(before) == 0 {
				continue
			}
			work++
			var ok bool
			if sunk, ok = l.sink(a, before, limit, sunk); ok {
				ways[l.number(a.to)].offer(a, sunk)
				some = true
			}
		}
		if was, ways = ways, was; !some {
			return nil, work
		}
		if turn%lapOften == 0 {
			if found := l.comeBack(r, was, limit); found != nil {
				return found, work
			}
		}
	}
	return nil, work
}

// comeBack returns the fewest batches of laps that fit below a limit and come back, of
// ways each of which goes on from another one; nil where there are none.
func (l *laps) comeBack(r *Round, ways []reach, limit int64) (best []lap) {
	seen := make([]int, len(ways)) // from which cut on it was first come by, from 1
	most := lapPeriods*len(l.batches) + 1
	for begin := range ways {
		at := begin
		for len(ways[at].sunk) > 0 && seen[at] == 0 {
			seen[at] = begin + 1
			at = l.number(ways[at].lap.from)
		}
		if len(ways[at].sunk) == 0 || seen[at] != begin+1 {
			continue
		}
		if all, batches := l.back(ways, at); batches < most && l.fits(all, limit, r.Buffers, nil) {
			most, best = batches, all
		}
	}
	return best
}

// back returns the laps that lead from a cut to itself, one behind the other, and how many
// batches they take.
func (l *laps) back(ways []reach, to int) (all []lap, batches int) {
	for at := to; len(all) == 0 || at != to; at = l.number(all[len(all)-1].from) {
		all = append(all, ways[at].lap)
	}
	slices.Reverse(all)
	k := all[0].from.batch + len(l.batches) // later than the beginning, where a lap may come from
	for i := range all {
		n := all[i].to.batch - all[i].from.batch
		all[i].from.batch, all[i].to.batch = k, k+n
		k += n
		batches += n
	}
	return all, batches
}
