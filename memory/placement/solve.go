package placement

import (
	"context"
	"fmt"
	"time"
)

// Options limit what Solve does. The zero value asks for the least height, within a
// default amount of work.
type Options struct {
	// Capacity is a height that is low enough: Plan stops there. 0 asks for the least.
	Capacity int64
	// Time is after how long Plan stops with the best so far; 0 is no limit by the clock.
	Time time.Duration
	// Nodes is how much work Solve may do, counted in buffers put to a place, more for one
	// with gaps: about a microsecond each. 0 is five million. A first greedy layout is made
	// however few they are, and there are about a dozen: for less than that many times the
	// buffers not all are tried. As long as it is this limit that ends Plan, and not the clock or
	// the context, equal problems with equal options have equal layouts on every machine.
	Nodes int64
	// Seed is of the random choices.
	Seed uint64
}

// DefaultNodes is Options.Nodes where they are 0.
const DefaultNodes = 5_000_000

// Solve lays out a problem. It races greedy recipes and improves the best of them; it stops as
// soon as a layout meets the bound or the capacity. The layout has passed Check. If ctx ends, it returns the best
// layout so far, or where there is none yet one of size classes, which takes no longer than
// to check it. The only errors are ErrProblem.
func Solve(ctx context.Context, p *Problem, options Options) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	if options.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, options.Time)
		defer cancel()
	}
	r := newRace(p, options)
	r.greedy(ctx)
	r.queue(ctx)
	r.longLived(ctx)
	r.reorder(ctx)
	return r.solution()
}

// validate says whether the options make sense.
func (o *Options) validate() error {
	if o.Capacity < 0 || o.Time < 0 || o.Nodes < 0 {
		return fmt.Errorf("%w: capacity %d, time %v, nodes %d: a limit is below 0", ErrProblem, o.Capacity, o.Time, o.Nodes)
	}
	return nil
}
