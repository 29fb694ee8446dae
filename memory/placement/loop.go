package placement

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// PlanLoop lays out the beginning of a program that repeats, so that it can go on for
// ever: at times[from] and at times[to] what is alive lies at the same offsets and has
// as long to live. Whatever is born between the two may then be repeated, with its
// offsets, any number of times, and nothing overlaps. The times are ascending, one in
// every period, at the same point of it; the program repeats exactly between them. So a
// program of any length is planned from its periods.
//
// Lower layouts are tried first, within Options.Nodes. Where none closes, to is 0, and
// the layout is that of Plan. The problem has no gaps; options fix nothing.
func PlanLoop(ctx context.Context, p *Problem, times []int64, options Options) (layout *Layout, from, to int, err error) {
	if err := p.Validate(); err != nil {
		return nil, 0, 0, err
	}
	if err := options.validate(p); err != nil {
		return nil, 0, 0, err
	}
	r := newRace(p, options)
	if !slices.IsSorted(times) || !r.plain() {
		return nil, 0, 0, fmt.Errorf("%w: a loop needs ascending times, and a problem without gaps and with nothing fixed", ErrProblem)
	}
	if from, to = r.close(ctx, times); to > 0 {
		layout, err = r.layout()
		return layout, from, to, err
	}
	layout, err = Plan(ctx, p, options)
	return layout, 0, 0, err
}

// Loops are tried at limits that are so many parts of the bound apart, up to so many of
// these steps above it.
const (
	loopStep = 400
	maxLoop  = 80
)

// close looks for the lowest layout that closes to a loop: around a ring, or beside what
// dies next.
func (r *race) close(ctx context.Context, times []int64) (from, to int) {
	p := r.grid.problem
	ring, beside := newRing(p), newNeighbours(p, r.seed)
	for step := range int64(maxLoop) {
		if r.left <= 0 || ctx.Err() != nil {
			break
		}
		limit := r.grid.bound + r.grid.bound/loopStep*step
		for start := range int64(ringStarts) {
			nodes := min(r.left, 20*int64(len(p.Buffers)))
			found := ring.within(ctx, limit, limit/ringStarts*start, nodes)
			r.left -= nodes - max(ring.left, 0)
			if !found {
				continue
			}
			if from, to = loop(p, ring.offsets, times); to > 0 {
				r.offer(ring.offsets, r.grid.height(ring.offsets), "in order of birth around a ring, closed to a loop")
				return from, to
			}
		}
		beside.plain()
		found, nodes := beside.within(ctx, limit)
		r.left -= nodes
		if found {
			if from, to = loop(p, beside.offsets, times); to > 0 {
				r.offer(beside.offsets, r.grid.height(beside.offsets), "in order of birth, beside what dies next to it, closed to a loop")
				return from, to
			}
		}
	}
	return 0, 0
}

// loop returns the first two times at which what is alive is alike, or 0, 0.
func loop(p *Problem, offsets, times []int64) (from, to int) {
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
