package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// attempt is a played program, and a layout of it.
type attempt struct {
	played   *player
	rotates  bool    // buffers of one size rotate
	group    []int32 // by item
	groups   int
	solution *placement.Solution
	align    func(int64) int64
	separate bool // every item was placed separately, so a proof for the problem is a proof for the program
}

const (
	// defaultWork is the work of the search on all ranks together, in the unit of
	// placement.Options.Nodes, about a microsecond.
	defaultWork = 1_200_000
	// cycles is the number of good cycles to try besides the shortest one, if the program
	// has at most maxTried births, or a 64th of the work, and at most an eighth of it.
	cycles   = 4
	maxTried = 10_000
	// excessDivisor: in a large program, a layout whose excess is below 1/excessDivisor of
	// the live bytes is low enough.
	excessDivisor = 100
	// maxSearched is the largest number of buffers of a program that is searched for a
	// smaller excess than that.
	maxSearched = 5_000
	// maxUnrolled is the largest number of births of a program with few repeats that is also
	// laid out without a cycle. maxUnrolledHigh applies if the layout has a larger excess.
	maxUnrolled, maxUnrolledHigh = 1 << 14, 1 << 16
)

// search looks for a layout of a rank's program that is as low as its live bytes. Offsets
// recur after a cycle of repeats. It lays out a program that is not large with the shortest
// cycle first. If that misses the bound, or the program is large, buffers of one size rotate
// through a few places, for which it chooses a cycle. If that leaves room unused, it lays
// out a short program without any cycle. A program without cycles is searched.
func (p *Memory) search(ctx context.Context, ports *ports, rank int, far bool) (*attempt, error) {
	left := p.cfg.Search.Nodes
	if left == 0 {
		left = int64(defaultWork / len(p.Ranks))
	}
	shortest, err := p.play(ports, rank, far, true, nil)
	if err != nil {
		return nil, err
	}
	var best *attempt
	try := func(a *attempt, work int64) error {
		err := a.place(ctx, a.played.alignment(), p.cfg.Search, work)
		if err == nil && (best == nil || a.solution.Height < best.solution.Height) {
			best = a
		}
		return err
	}
	tries := 1
	if births := int64(len(shortest.played.items)); shortest.separate || births <= left/8 && births <= max(maxTried, left/64) {
		if err := try(shortest, min(births, left/8)); err != nil {
			return nil, err
		}
		tries = cycles
	}
	for nth := 0; nth < tries && !shortest.separate && !best.lowEnough(); nth++ {
		rotations := shortest.played.rotations(nth)
		if rotations == nil {
			break
		}
		a, err := p.play(ports, rank, far, true, rotations)
		if err == nil {
			err = try(a, 1)
		}
		if err != nil {
			return nil, err
		}
	}
	if best == nil {
		if err := try(shortest, 1); err != nil {
			return nil, err
		}
	}
	births := int64(maxUnrolled)
	if best.excess() > best.played.most()/excessDivisor {
		births = maxUnrolledHigh
	}
	if !shortest.separate && !best.lowEnough() && shortest.played.fewRepeats() && shortest.played.unrolled() <= births {
		a, err := p.play(ports, rank, far, false, nil)
		if err == nil {
			err = try(a, 4)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(best.played.items) > maxSearched && best.excess() <= best.played.most()/excessDivisor {
		return best, nil // a search would take seconds to gain less than that
	}
	for _, align := range best.alignments() {
		if best.lowEnough() || left <= 0 {
			break
		}
		if err := best.place(ctx, align, p.cfg.Search, left); err != nil {
			return nil, err
		}
		left /= 2
	}
	return best, nil
}

// play plays the program of a rank to its end, and groups the items that share an offset. If
// it skips repeats, it uses the shortest cycles, or the cycles of rotations.
func (p *Memory) play(ports *ports, rank int, far, skips bool, rotations map[int]*rotation) (*attempt, error) {
	a := &attempt{played: newPlayer(p.plan, p.profile, ports, rank, far, &p.cfg), rotates: rotations != nil}
	if skips && p.cfg.Shapes == nil {
		a.played.skip = &skipper{rotations: rotations}
	}
	if err := a.played.play(); err != nil {
		return nil, err
	}
	a.group, a.groups = a.played.groups(rotations)
	a.separate = a.groups == len(a.played.items)
	return a, nil
}

// fewRepeats reports whether every segment has fewer repeats than the longest cycle of a
// rotation.
func (p *player) fewRepeats() bool {
	return !slices.ContainsFunc(p.program, func(s schedule.Segment) bool { return s.Repeat > longestCycle })
}

// unrolled returns the number of births in the whole program, all repeats counted.
func (p *player) unrolled() (births int64) {
	in := make([]int64, len(p.spans)+1)
	for i := range p.items {
		in[p.items[i].place.segment]++
	}
	for s, span := range p.spans {
		repeats := int64(p.program[s].Repeat)
		births += in[s] * repeats / (repeats - int64(span.skipped))
	}
	return births + in[len(p.spans)]
}

// place searches for a lower layout with this amount of work.
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

// excess returns the height of the layout minus the largest number of live bytes.
func (a *attempt) excess() int64 { return a.solution.Height - a.played.most() }

// optimal reports whether the layout meets the lower bound.
func (a *attempt) optimal() bool { return roundUp(a.solution.Height, leastAlign) == a.played.least() }
