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
// room unused in some cycles than in others. Queues go in laps, and buffers of few sizes in
// lanes, which find their cycles themselves. Then the shortest one is tried, and those in
// which sizes alone, one after the other, come back to where they were. PlanRound stops
// at a layout of the capacity, or of the bound where there is none. The only errors are
// ErrProblem.
func PlanRound(ctx context.Context, r *Round, options Options) (*RoundLayout, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	if len(r.Buffers) == 0 {
		return &RoundLayout{Layout{Optimal: true, Method: "nothing to place"}, 1}, nil
	}
	race := newRoundRace(r, options)
	for _, way := range []func(context.Context) error{
		race.laps, race.lanes, race.shortest, race.loop, race.sizes, race.moreLanes, race.longer, race.afterSizes,
	} {
		if err := way(ctx); err != nil || race.over() {
			return race.best, err
		}
	}
	return race.best, nil
}

// roundRace is what is known of a round while one way after the other is tried.
type roundRace struct {
	round   *Round
	options Options
	least   int // periods in the shortest cycle
	bound   int64
	left    int64 // nodes, of those for whole cycles
	best    *RoundLayout
	placed  []sized // cycles in which some sizes came back
}

// sized is a cycle in which some sizes have their places, the others -1.
type sized struct {
	cycle int
	fixed []int64
}

func newRoundRace(r *Round, options Options) *roundRace {
	least := r.shortest()
	bound := r.circle(least).Bound()
	if options.Capacity = max(options.Capacity, bound); options.Nodes == 0 {
		options.Nodes = defaultNodes
	}
	return &roundRace{round: r, options: options, least: least, bound: bound, left: options.Nodes}
}

// over reports whether there is a layout that is low enough.
func (r *roundRace) over() bool { return r.best != nil && r.best.Height <= r.options.Capacity }

// offer takes a layout that is right, if it is lower.
func (r *roundRace) offer(l *RoundLayout) error {
	if l == nil || r.best != nil && l.Height >= r.best.Height {
		return nil
	}
	if _, err := Check(r.round.circle(l.Cycle), l.Offsets); err != nil {
		return fmt.Errorf("the layout by %q is wrong: %w", l.Method, err)
	}
	l.Bound, l.Optimal = r.bound, l.Height == r.bound
	r.best = l
	return nil
}

// part returns the options with a part of the nodes.
func (r *roundRace) part(of int64) Options {
	options := r.options
	options.Nodes = max(options.Nodes/of, 1)
	return options
}

// cycle plans a whole cycle, of which some may have its place, with a part of the nodes.
func (r *roundRace) cycle(ctx context.Context, c sized, part int64) error {
	options := r.part(part)
	if r.left -= options.Nodes; r.left < 0 {
		return nil
	}
	options.Fixed = c.fixed
	l, err := Plan(ctx, r.round.circle(c.cycle), options)
	if err != nil {
		return err
	}
	return r.offer(&RoundLayout{*l, c.cycle})
}

func (r *roundRace) laps(ctx context.Context) error {
	return r.offer(r.round.laps(ctx, r.least, r.part(4)))
}

func (r *roundRace) lanes(ctx context.Context) error {
	return r.offer(r.round.lanes(ctx, r.least, r.part(8)))
}

// moreLanes is another search, which takes longer.
func (r *roundRace) moreLanes(ctx context.Context) error {
	options := r.part(2)
	options.Seed++
	return r.offer(r.round.lanes(ctx, r.least, options))
}

func (r *roundRace) shortest(ctx context.Context) error {
	return r.cycle(ctx, sized{cycle: r.least}, 3)
}

func (r *roundRace) loop(ctx context.Context) error {
	return r.offer(r.round.loop(ctx, r.least, r.part(4)))
}

// sizes places size after size, and remembers how far it came in which cycles.
func (r *roundRace) sizes(ctx context.Context) error {
	s := newSizes(r.round, r.least)
	for s.next(ctx) && !s.complete() {
		if s.cycle >= r.least {
			r.placed = append(r.placed, sized{s.cycle, slices.Concat(s.offsets...)})
		}
	}
	if !s.complete() {
		return nil
	}
	l := Layout{Offsets: slices.Concat(s.offsets...), Height: s.height, Method: "size after size, in order of birth, until it came back"}
	return r.offer(&RoundLayout{l, s.cycle})
}

// longer plans the cycles in which sizes came back, and a few that nothing speaks for.
func (r *roundRace) longer(ctx context.Context) error {
	var cycles []int
	for _, p := range r.placed {
		cycles = append(cycles, p.cycle)
	}
	for c := r.least + 1; c <= r.least+4 && c*len(r.round.Buffers) <= fewBuffers; c++ {
		cycles = append(cycles, c)
	}
	tried := []int{r.least}
	for _, c := range cycles {
		if slices.Contains(tried, c) {
			continue
		}
		tried = append(tried, c)
		if err := r.cycle(ctx, sized{cycle: c}, 4); err != nil || r.over() {
			return err
		}
	}
	return nil
}

// afterSizes plans the sizes that did not come back around those that did.
func (r *roundRace) afterSizes(ctx context.Context) error {
	for _, p := range r.placed {
		if err := r.cycle(ctx, p, 4); err != nil || r.over() {
			return err
		}
	}
	return nil
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
