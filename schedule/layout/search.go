package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// attempt is a trace with its groups, and its lowest layout so far.
type attempt struct {
	*trace
	group    []int32 // by allocation; the allocations of a group share one offset
	count    int     // number of groups
	solution *placement.Solution
	align    func(int64) int64 // of the solution
}

const (
	// defaultWork is the work of the search over all ranks, in nodes of placement.Options, each of which
	// takes about a microsecond.
	defaultWork = 1_200_000
	// shapedWork is the largest default work for each allocation if Config.Shapes gives the shape of every
	// microbatch: such a program is laid out anew whenever the shapes change, and its allocations, of many
	// sizes, fit so well that more work gains less than a thousandth of the peak.
	shapedWork = 8
	// maxRotations is the largest number of rotations to lay out.
	maxRotations = 4
	// maxUnrolled is the largest number of births of a program for which a layout with every repeat
	// traced is also tried.
	maxUnrolled = 1 << 16
	// In a program with more than maxSearched births, a layout is low enough if its excess over the
	// peak is at most 1/excessDivisor of the peak. To gain less than that, a search would take seconds.
	maxSearched   = 5_000
	excessDivisor = 100
)

// search looks for a layout of a rank's program whose height is the peak of its live bytes. It
// stops at the first layout that is low enough. The package documentation lists the attempts, under
// "The search".
func (p *Memory) search(ctx context.Context, rank int, far bool) (*attempt, error) {
	work := p.cfg.Search.Nodes
	shortest, err := p.attempt(rank, far, true, nil)
	if err == nil {
		if work == 0 {
			work = int64(defaultWork / len(p.Ranks))
			if p.cfg.Shapes != nil && p.cfg.Search.Time == 0 {
				work = min(work, int64(shapedWork*len(shortest.allocations)))
			}
		}
		err = shortest.place(ctx, shortest.alignment(), min(int64(len(shortest.allocations)), work/8))
	}
	if err != nil {
		return nil, err
	}
	best := shortest
	// try makes another attempt, and keeps it if its layout is lower.
	try := func(skips bool, rotations map[int]*rotation, work int64) error {
		a, err := p.attempt(rank, far, skips, rotations)
		if err == nil {
			err = a.place(ctx, a.alignment(), work)
		}
		if err == nil && a.solution.Height < best.solution.Height {
			best = a
		}
		return err
	}
	for nth := 0; nth < maxRotations && !shortest.separate() && !best.lowEnough(); nth++ {
		rotations := shortest.rotationsOf(nth)
		if rotations == nil {
			break
		}
		if err := try(true, rotations, 1); err != nil {
			return nil, err
		}
	}
	// A program has few repeats if tracing all of them takes no longer than tracing a rotation's longest
	// cycle.
	few := !slices.ContainsFunc(p.plan.Programs[rank], func(s schedule.Segment) bool { return s.Repeat > longestCycle })
	if few && shortest.total <= maxUnrolled && !shortest.separate() && !best.lowEnough() {
		if err := try(false, nil, work/8); err != nil {
			return nil, err
		}
	}
	for _, align := range best.alignments() { // empty if a longer search would gain little
		if best.lowEnough() || work <= 0 {
			break
		}
		if err := best.place(ctx, align, work); err != nil {
			return nil, err
		}
		work /= 2
	}
	return best, nil
}

// attempt traces the program of a rank, and groups the allocations that share an offset. It traces every
// repeat if skips is false, or if the shape of every microbatch is given, because repeats may then differ.
func (p *Memory) attempt(rank int, far, skips bool, rotations map[int]*rotation) (*attempt, error) {
	a := &attempt{trace: p.newTrace(rank, far)}
	a.skips, a.rotations = skips && p.cfg.Shapes == nil, rotations
	if err := a.run(); err != nil {
		return nil, err
	}
	a.births = a.birthsByPlace()
	a.group, a.count = a.groups()
	return a, nil
}

// separate reports whether every allocation is a group of its own, so that a proof for the problem is a
// proof for the program.
func (a *attempt) separate() bool { return a.count == len(a.allocations) }

// place lays out the groups with the given amount of work, and keeps the layout if it is lower.
func (a *attempt) place(ctx context.Context, align func(int64) int64, work int64) error {
	options := a.cfg.Search
	options.Nodes = max(work, 1)
	solution, err := placement.Solve(ctx, a.problem(a.group, a.count, align), options)
	if err != nil {
		return err
	}
	if a.solution == nil || solution.Height < a.solution.Height {
		a.solution, a.align = solution, align
	}
	return nil
}

// optimal reports whether the layout meets the lower bound.
func (a *attempt) optimal() bool {
	return roundUp(a.solution.Height, minAlign) == a.peaks().padded
}

// lowEnough reports whether a further search is pointless: the layout is optimal, or its excess is
// small and either the program is large or the padding to cache lines prevents an optimal layout.
func (a *attempt) lowEnough() bool {
	peak := a.peaks().bytes
	small := func(divisor int64) bool { return a.solution.Height-peak <= peak/divisor }
	return a.optimal() ||
		len(a.allocations) > maxSearched && small(excessDivisor) ||
		a.boundByPadding() && small(paddingDivisor)
}
