package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// attempt is a played program, and the lowest layout of it so far.
type attempt struct {
	played   *player
	group    []int32 // by allocation; the allocations of a group share one offset
	groups   int
	separate bool // every allocation is a group by itself, so a proof for the problem is a proof for the program
	solution *placement.Solution
	align    func(int64) int64 // of the solution
}

const (
	// defaultWork is the work of the search on all ranks together, in the unit of
	// placement.Options.Nodes, about a microsecond.
	defaultWork = 1_200_000
	// maxRotations is the largest number of rotations to lay out.
	maxRotations = 4
	// maxUnrolled is the largest number of births of a program that is also laid out with every
	// repeat played.
	maxUnrolled = 1 << 16
	// In a program with more than maxSearched births, a layout is low enough if its excess is at
	// most 1/excessDivisor of the live bytes. To gain less than that, a search would take seconds.
	maxSearched   = 5_000
	excessDivisor = 100
)

// search looks for a layout of a rank's program whose height is the peak of its live bytes. It
// stops at the first layout that is low enough. It lays out:
//
//  1. the program with the shortest cycles, then with the cycles of a few rotations;
//  2. a program with few repeats, with every repeat played, so that no births must share an offset;
//  3. the best of these once more, with the remaining work and another alignment.
func (p *Memory) search(ctx context.Context, ports *ports, rank int, far bool) (*attempt, error) {
	work := p.cfg.Search.Nodes
	if work == 0 {
		work = int64(defaultWork / len(p.Ranks))
	}
	var best *attempt
	try := func(a *attempt, work int64) error {
		err := a.place(ctx, a.played.alignment(), p.cfg.Search, work)
		if err == nil && (best == nil || a.solution.Height < best.solution.Height) {
			best = a
		}
		return err
	}
	shortest, err := p.play(ports, rank, far, &skipper{})
	if err != nil {
		return nil, err
	}
	if err := try(shortest, min(int64(len(shortest.played.allocations)), work/8)); err != nil {
		return nil, err
	}
	for nth := 0; nth < maxRotations && !shortest.separate && !best.lowEnough(); nth++ {
		rotations := shortest.played.rotations(nth)
		if rotations == nil {
			break
		}
		a, err := p.play(ports, rank, far, &skipper{rotations: rotations})
		if err == nil {
			err = try(a, 1)
		}
		if err != nil {
			return nil, err
		}
	}
	if !shortest.separate && !best.lowEnough() && shortest.played.fewRepeats() && shortest.played.unrolled() <= maxUnrolled {
		a, err := p.play(ports, rank, far, nil)
		if err == nil {
			err = try(a, 4)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, align := range best.alignments() {
		if best.lowEnough() || work <= 0 {
			break
		}
		if err := best.place(ctx, align, p.cfg.Search, work); err != nil {
			return nil, err
		}
		work /= 2
	}
	return best, nil
}

// play plays the program of a rank to its end, and groups the allocations that share an offset. Nil
// plays every repeat; so do shape classes that are known beforehand, because then repeats differ.
func (p *Memory) play(ports *ports, rank int, far bool, skip *skipper) (*attempt, error) {
	a := &attempt{played: newPlayer(p.plan, p.profile, ports, rank, far, &p.cfg)}
	if p.cfg.Shapes == nil {
		a.played.skip = skip
	}
	if err := a.played.play(); err != nil {
		return nil, err
	}
	a.group, a.groups = a.played.groups()
	a.separate = a.groups == len(a.played.allocations)
	return a, nil
}

// fewRepeats reports whether every segment has at most as many repeats as the longest cycle of a
// rotation.
func (p *player) fewRepeats() bool {
	return !slices.ContainsFunc(p.program, func(s schedule.Segment) bool { return s.Repeat > longestCycle })
}

// unrolled returns the number of births in the whole program, all repeats counted.
func (p *player) unrolled() (births int64) {
	played := make([]int64, len(p.program)+1) // births by segment; the last number is those of step end
	for i := range p.allocations {
		played[p.allocations[i].position.segment]++
	}
	for s, span := range p.spans {
		repeats := int64(p.program[s].Repeat)
		births += played[s] * repeats / (repeats - int64(span.skipped))
	}
	return births + played[len(p.program)]
}

// place lays out the groups with this amount of work, and keeps the layout if it is lower.
func (a *attempt) place(ctx context.Context, align func(int64) int64, search placement.Options, work int64) error {
	search.Nodes = max(work, 1)
	solution, err := placement.Solve(ctx, a.problem(align), search)
	if err != nil {
		return err
	}
	if a.solution == nil || solution.Height < a.solution.Height {
		a.solution, a.align = solution, align
	}
	return nil
}

// problem returns the placement problem of the groups.
func (a *attempt) problem(align func(int64) int64) *placement.Problem {
	return a.played.problem(a.group, a.groups, align)
}

// rotates reports whether the cycles of the program are those of rotations.
func (a *attempt) rotates() bool { return a.played.skip != nil && a.played.skip.rotations != nil }

// excess returns the height of the layout minus the largest number of live bytes.
func (a *attempt) excess() int64 { return a.solution.Height - a.played.peakBytes() }

// optimal reports whether the layout meets the lower bound.
func (a *attempt) optimal() bool {
	return roundUp(a.solution.Height, leastAlign) == a.played.heightBound()
}

// lowEnough reports whether a further search is pointless: the layout is optimal, or its excess is
// small compared with the padding to cache lines, or the program is large and the excess small.
func (a *attempt) lowEnough() bool {
	small := func(divisor int64) bool { return a.excess() <= a.played.peakBytes()/divisor }
	return a != nil && (a.optimal() ||
		len(a.played.allocations) > maxSearched && small(excessDivisor) ||
		a.played.boundByPadding() && small(paddingDivisor))
}
