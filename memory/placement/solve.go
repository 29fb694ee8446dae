package placement

import (
	"context"
	"fmt"
	"time"
)

// Options limit the work of Solve. The zero value requests the minimal height, within a default
// amount of work.
type Options struct {
	// Capacity is a height that is low enough: Solve stops as soon as a layout is not higher. 0 requests the
	// minimal height.
	Capacity int64
	// Time is the time after which Solve stops with the best layout so far; 0 means no limit.
	Time time.Duration
	// Nodes limits the work of Solve, counted in placements of buffers (a buffer with gaps counts more
	// than once), which take about a microsecond each. 0 means five million. One greedy layout is always
	// made. There are about a dozen recipes; with fewer nodes than a dozen times the number of buffers,
	// not all of them are tried. Unless the clock or the context ends Solve, equal problems with equal
	// options yield equal layouts on every machine.
	Nodes int64
	// Seed determines the random choices.
	Seed uint64
}

// DefaultNodes is the limit that an Options.Nodes of 0 stands for.
const DefaultNodes = 5_000_000

// Solve lays out a problem. It races greedy recipes and improves the best of them; it stops as
// soon as a layout meets the bound or the capacity, or the limits are used up. The layout has passed Check.
// If ctx or the time ends, Solve returns the best layout so far or, if there is none yet, one based on size
// classes, which takes no longer than a check. An error for an invalid problem or option wraps ErrProblem.
func Solve(ctx context.Context, p *Problem, options Options) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if options.Capacity < 0 || options.Time < 0 || options.Nodes < 0 {
		return nil, fmt.Errorf("%w: capacity %d, time %v, nodes %d: a limit is below 0", ErrProblem, options.Capacity, options.Time, options.Nodes)
	}
	if options.Time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, options.Time)
		defer cancel()
	}
	r := newRace(p, options)
	r.greedy(ctx)
	r.ring(ctx)
	r.longLived(ctx)
	r.reorder(ctx)
	return r.solution()
}
