package placement

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
)

// Loops are looked for in so many periods, or buffers, at limits that are further and
// further above the bound: step 1 is so large a part of it, step 2 twice as much more.
const (
	loopPeriods = 40
	loopBuffers = 1 << 12
	loopStep    = 800
	loopSteps   = 12
)

// loop lays out the first periods of a round in order of birth, around a ring or each
// beside what dies next to it, and looks for two beginnings of periods at which what is
// alive lies alike. What is born between the two can be repeated for ever. Lower layouts
// are tried first, and then those that are lower still around fuller rings. It returns nil
// where none closes.
func (r *Round) loop(ctx context.Context, lives int, options Options) *RoundLayout {
	periods := min(loopPeriods, loopBuffers/max(len(r.Buffers), 1))
	if periods < 2*lives {
		return nil
	}
	p := &Problem{}
	var times []int64
	for k := range int64(periods) {
		for _, b := range r.Buffers {
			b.Lower, b.Upper = b.Lower+k*r.Period, b.Upper+k*r.Period
			p.Buffers = append(p.Buffers, b)
		}
		if k >= int64(lives) {
			times = append(times, k*r.Period)
		}
	}
	race := newRace(p, options)
	from, to := race.close(ctx, times)
	tight := newRace(p, options)
	if first, last := tight.closeTight(ctx, times, race.height); last > 0 && last-first >= lives {
		race, from, to = tight, first, last
	}
	if to == 0 || to-from < lives {
		return nil
	}
	l := &RoundLayout{Cycle: to - from, Layout: Layout{Method: race.method}}
	n := len(r.Buffers)
	l.Offsets = make([]int64, l.Cycle*n)
	for k := from + lives; k < to+lives; k++ {
		copy(l.Offsets[k%l.Cycle*n:], race.offsets[k*n:(k+1)*n])
	}
	for i, at := range l.Offsets {
		l.Height = max(l.Height, at+r.Buffers[i%n].Size)
	}
	return l
}

// close looks for the lowest layout that closes to a loop.
func (r *race) close(ctx context.Context, times []int64) (from, to int) {
	p := r.grid.problem
	ring, beside := newRing(p), newNeighbours(p, r.seed)
	for step := range int64(loopSteps) {
		if r.left <= 0 || ctx.Err() != nil {
			break
		}
		limit := max(r.wanted, r.grid.bound) + r.grid.bound/loopStep*step*(step+1)/2
		for start := range int64(ringStarts) {
			nodes := min(r.left, 4*int64(len(p.Buffers)))
			found := ring.within(ctx, limit, limit/ringStarts*start, nodes)
			r.left -= nodes - max(ring.left, 0)
			if !found {
				continue
			}
			if from, to = alike(p, ring.offsets, times); to > 0 {
				r.offer(ring.offsets, r.grid.height(ring.offsets), "in order of birth around a ring, closed to a loop")
				return from, to
			}
		}
		beside.plain()
		found, nodes := beside.within(ctx, limit)
		r.left -= nodes
		if found {
			if from, to = alike(p, beside.offsets, times); to > 0 {
				r.offer(beside.offsets, r.grid.height(beside.offsets), "in order of birth, beside what dies next to it, closed to a loop")
				return from, to
			}
		}
	}
	return 0, 0
}

// closeTight looks for a layout that closes to a loop below a height, 0 for any, around
// rings that leave less room behind, in order of birth and of death.
func (r *race) closeTight(ctx context.Context, times []int64, height int64) (from, to int) {
	p := r.grid.problem
	back := &Problem{Buffers: make([]Buffer, len(p.Buffers))}
	for i, b := range p.Buffers {
		back.Buffers[i] = b.backward()
	}
	births, deaths := newRing(p), newRing(back)
	births.ahead, deaths.ahead = lastingAhead, lastingAhead
	for step := range int64(loopSteps) {
		limit := max(r.wanted, r.grid.bound) + r.grid.bound/loopStep*step*(step+1)/2
		if height > 0 && limit >= height {
			break
		}
		for start := range int64(ringStarts) {
			for _, s := range []*ring{births, deaths} {
				if r.left <= 0 || ctx.Err() != nil {
					return 0, 0
				}
				nodes := min(r.left, 4*int64(len(p.Buffers)))
				found := s.within(ctx, limit, limit/ringStarts*start, nodes)
				if r.left -= nodes - max(s.left, 0); !found {
					continue
				}
				if from, to = alike(p, s.offsets, times); to > 0 {
					r.offer(s.offsets, r.grid.height(s.offsets), "around a ring whose ends are filled, closed to a loop")
					return from, to
				}
			}
		}
	}
	return 0, 0
}

// alike returns the first two times at which what is alive is alike, or 0, 0.
func alike(p *Problem, offsets, times []int64) (from, to int) {
	births := make([]int32, len(p.Buffers))
	for i := range births {
		births[i] = int32(i)
	}
	slices.SortFunc(births, func(x, y int32) int { return cmp.Compare(p.Buffers[x].Lower, p.Buffers[y].Lower) })
	seen := map[string]int{}
	var alive []int32
	for k, now := range times {
		for len(births) > 0 && p.Buffers[births[0]].Lower < now {
			alive = append(alive, births[0])
			births = births[1:]
		}
		alive = slices.DeleteFunc(alive, func(i int32) bool { return p.Buffers[i].Upper <= now })
		slices.SortFunc(alive, func(x, y int32) int { return cmp.Compare(offsets[x], offsets[y]) })
		var state []byte
		for _, i := range alive {
			b := &p.Buffers[i]
			for _, n := range []int64{offsets[i], b.Size, b.Align, b.Upper - now} {
				state = binary.AppendVarint(state, n)
			}
		}
		if was, ok := seen[string(state)]; ok && len(state) > 0 {
			return was, k
		}
		seen[string(state)] = k
	}
	return 0, 0
}
