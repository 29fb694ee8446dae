package placement

import (
	"context"
	"fmt"
	"slices"
)

// Round is a problem that goes on for ever: each buffer is born again in every period,
// and lives as long again. Lower is within the first period, Upper may be periods later.
// Buffers have no gaps.
type Round struct {
	Period  int64
	Buffers []Buffer
}

// RoundLayout is where the buffers of a round lie: they lie there again after a cycle of
// periods. Buffer b of period k, from 0, lies at Offsets[k%Cycle*len(Buffers)+b].
type RoundLayout struct {
	Layout
	Cycle int
}

const (
	// mostPeriods is how long a cycle is at most that is longer than the shortest one.
	mostPeriods = 30
	// fewBuffers is how many there are in a circle of a length that nothing speaks for.
	fewBuffers = 300
	// longestPeriod and maxAlive are limits, of time and of buffers in the shortest cycle.
	longestPeriod = 1 << 40
	maxAlive      = 1 << 22
)

// PlanRound lays out a round. How long the cycle is, is not known beforehand: it must be
// as long as the longest life, and lives that are no whole number of periods leave less
// room unused in some cycles than in others. So the shortest one is tried, and those in
// which sizes alone, one after the other, come back to where they were. PlanRound stops
// at a layout of the capacity, or of the bound where there is none. The only errors are
// ErrProblem.
func PlanRound(ctx context.Context, r *Round, options Options) (*RoundLayout, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	least := r.shortest()
	bound := r.circle(least).Bound()
	if options.Capacity = max(options.Capacity, bound); options.Nodes == 0 {
		options.Nodes = defaultNodes
	}
	var best *RoundLayout
	offer := func(cycle int, l *Layout) (enough bool) {
		if best == nil || l.Height < best.Height {
			best = &RoundLayout{*l, cycle}
			best.Bound, best.Optimal = bound, l.Height == bound
		}
		return best.Height <= options.Capacity
	}
	share := options
	share.Nodes = max(options.Nodes/3, 1)
	left := options.Nodes
	plan := func(cycle int, fixed []int64) (enough bool, err error) {
		if left -= share.Nodes; left < 0 {
			return true, nil
		}
		share.Fixed = fixed
		l, err := Plan(ctx, r.circle(cycle), share)
		if err != nil {
			return false, err
		}
		return offer(cycle, l), nil
	}
	lanes := options
	inLanes := func(nodes int64) (enough bool, err error) {
		lanes.Nodes = nodes
		l := r.lanes(ctx, least, options.Capacity, lanes)
		if l == nil {
			return false, nil
		}
		if _, err := Check(r.circle(l.Cycle), l.Offsets); err != nil {
			return false, fmt.Errorf("the layout by %q is wrong: %w", l.Method, err)
		}
		return offer(l.Cycle, &l.Layout), nil
	}
	if enough, err := inLanes(options.Nodes / 8); enough || err != nil {
		return best, err
	}
	if enough, err := plan(least, nil); enough || err != nil {
		return best, err
	}
	share.Nodes = max(options.Nodes/4, 1)
	if l := r.loop(ctx, least, share); l != nil {
		if _, err := Check(r.circle(l.Cycle), l.Offsets); err != nil {
			return nil, fmt.Errorf("the layout by %q is wrong: %w", l.Method, err)
		}
		if offer(l.Cycle, &l.Layout) {
			return best, nil
		}
	}
	s := newSizes(r, least)
	tried := []int{least}
	type part struct {
		cycle int
		fixed []int64
	}
	var parts []part
	for s.next(ctx) && !s.complete() {
		c := s.cycle
		if c < least {
			continue
		}
		if !slices.Contains(tried, c) {
			tried = append(tried, c)
		}
		parts = append(parts, part{c, slices.Concat(s.offsets...)})
	}
	if offsets := s.offsets; s.complete() {
		l := &Layout{Offsets: slices.Concat(offsets...), Height: s.height, Method: "size after size, in order of birth, until it came back"}
		if _, err := Check(r.circle(s.cycle), l.Offsets); err != nil {
			return nil, fmt.Errorf("the layout by %q is wrong: %w", l.Method, err)
		}
		if offer(s.cycle, l) {
			return best, nil
		}
	}
	lanes.Seed++ // another search
	if enough, err := inLanes(options.Nodes / 2); enough || err != nil {
		return best, err
	}
	for c := least + 1; c <= least+4 && c*len(r.Buffers) <= fewBuffers; c++ {
		if !slices.Contains(tried, c) {
			tried = append(tried, c)
		}
	}
	for _, c := range tried[1:] {
		if enough, err := plan(c, nil); enough || err != nil {
			return best, err
		}
	}
	for _, p := range parts {
		if enough, err := plan(p.cycle, p.fixed); enough || err != nil {
			return best, err
		}
	}
	return best, nil
}

// validate reports the first fault.
func (r *Round) validate() error {
	p := Problem{r.Buffers}
	if err := p.Validate(); err != nil {
		return err
	}
	if r.Period <= 0 || r.Period > longestPeriod {
		return fmt.Errorf("%w: a round with a period of %d", ErrProblem, r.Period)
	}
	for i, b := range r.Buffers {
		if b.Lower < 0 || b.Lower >= r.Period || b.Gaps != nil {
			return fmt.Errorf("%w: buffer %d of a round is born outside of the first period, or has gaps", ErrProblem, i)
		}
		if b.Upper/r.Period > maxAlive/int64(len(r.Buffers)) {
			return fmt.Errorf("%w: buffer %d of a round lives for %d periods, which is too long", ErrProblem, i, b.Upper/r.Period)
		}
	}
	return nil
}

// shortest returns the shortest cycle that there is: the longest life, in periods.
func (r *Round) shortest() int {
	least := 1
	for _, b := range r.Buffers {
		least = max(least, int((b.Upper-b.Lower+r.Period-1)/r.Period))
	}
	return least
}

// circle returns the round as a problem of one cycle: what lives on behind its end lives
// at its beginning.
func (r *Round) circle(cycle int) *Problem {
	p := &Problem{Buffers: make([]Buffer, 0, cycle*len(r.Buffers))}
	end := int64(cycle) * r.Period
	for k := range int64(cycle) {
		for _, b := range r.Buffers {
			b.Lower, b.Upper = b.Lower+k*r.Period, b.Upper+k*r.Period
			if over := b.Upper - end; over > 0 {
				if over < b.Lower {
					b.Gaps = []Gap{{over, b.Lower}}
				}
				b.Lower, b.Upper = 0, end
			}
			p.Buffers = append(p.Buffers, b)
		}
	}
	return p
}
