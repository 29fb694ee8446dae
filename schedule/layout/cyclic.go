package layout

import (
	"context"

	"github.com/weir-ml/weir/memory/placement"
)

// cyclic is the search for a layout of a program that repeats.
type cyclic struct {
	plan   *Plan
	ports  *ports
	rank   int
	search placement.Options
	short  *attempt  // the program with the shortest cycles, laid out in a quick way
	rounds []*steady // what goes on and on, as it was laid out last
	tried  []*attempt
	recurs bool // a layout came back though nothing was tied
}

const (
	// near and far are how many births are laid out to see whether the layout comes back.
	near, far = 1 << 13, 1 << 15
	// chances is how many layouts of what goes on are tried, where the ends do not fit.
	chances = 4
	// greedy is how many greedy ways there are, about.
	greedy = 12
	// worthAll is which part of what is alive is worth all of the work, if that much is lost.
	worthAll = 1000
)

// run tries one way after the other until one is low enough: first those that cost little.
// Work is what there is for a thorough search, share for a quick one.
func (c *cyclic) run(ctx context.Context, share, work int64) error {
	for _, try := range []func() error{
		func() error { return c.recur(ctx, near, 1) },
		func() error { return c.quick(ctx, share) },
		func() error { return c.farther(ctx, work) },
		func() error { return c.greedily(ctx, c.worth(work)/4) },
		func() error { return c.shortest(ctx, c.worth(work)/4) },
		func() error { return c.thorough(ctx, c.worth(work)) },
		func() error { return c.recur(ctx, near, c.worth(share)) },
		func() error { return c.shortest(ctx, c.worth(work)) },
	} {
		if err := try(); err != nil || lowest(c.tried).enough() {
			return err
		}
	}
	return nil
}

// worth returns how much of the work a search is worth: all of it where more than a part of
// worthAll is lost or nobody has limited it, else less where less is lost.
func (c *cyclic) worth(work int64) int64 {
	best := lowest(c.tried)
	if c.search.Nodes == 0 {
		return work
	}
	return min(work, int64(float64(work)*float64(best.lost())/float64(best.played.most())*worthAll))
}

// recur looks for a layout that repeats itself though nothing is tied.
func (c *cyclic) recur(ctx context.Context, births int, work int64) error {
	if c.short.untied { // nothing repeats for long
		return nil
	}
	a, err := c.plan.recur(ctx, c.ports, c.rank, c.short.played, c.search, births, work)
	if a != nil {
		c.recurs = true
		c.tried = append(c.tried, a)
	}
	return err
}

// farther looks for it in more repeats, where it does not come to be in a few.
func (c *cyclic) farther(ctx context.Context, work int64) error {
	if c.recurs || far > work/4 {
		return nil
	}
	return c.recur(ctx, far, 1)
}

// greedily lays out a larger program with the shortest cycles in all the ways that there are
// without a search.
func (c *cyclic) greedily(ctx context.Context, work int64) error {
	if c.short.untied || c.short.groups <= small {
		return nil
	}
	return c.short.place(ctx, c.short.align, c.search, min(work, greedy*int64(c.short.groups)))
}

// shortest searches among the layouts with the shortest cycles.
func (c *cyclic) shortest(ctx context.Context, work int64) error {
	if c.short.untied || c.short.groups > small {
		return nil
	}
	return c.short.place(ctx, c.short.align, c.search, work)
}

// quick lays out what goes on in a quick way, and the program within it.
func (c *cyclic) quick(ctx context.Context, work int64) (err error) {
	if c.rounds, err = c.alone(ctx, work); err != nil {
		return err
	}
	return c.within(ctx, int64(len(c.short.played.items)))
}

// thorough searches for a layout of what goes on, and for one of the ends around it. Where
// only these do not fit, it tries others.
func (c *cyclic) thorough(ctx context.Context, work int64) error {
	for chance := range chances {
		if chance > 0 || !c.short.low(c.rounds) {
			rounds, err := c.alone(ctx, work/3*2)
			if err != nil || chance > 0 && sameRounds(rounds, c.rounds) {
				return err
			}
			c.rounds = rounds
			c.search.Seed++
		}
		if err := c.within(ctx, work/16); err != nil || !c.short.low(c.rounds) || lowest(c.tried).enough() {
			return err
		}
	}
	return nil
}

// alone lays out what goes on.
func (c *cyclic) alone(ctx context.Context, work int64) ([]*steady, error) {
	search := c.search
	search.Nodes = max(work, 1)
	return c.plan.rounds(ctx, c.ports, c.rank, c.short, search)
}

// within lays out the program within what goes on.
func (c *cyclic) within(ctx context.Context, work int64) error {
	search := c.search
	search.Nodes = max(work, 1)
	a, err := c.plan.within(ctx, c.ports, c.rank, c.rounds, search)
	if a != nil {
		c.tried = append(c.tried, a)
	}
	return err
}
