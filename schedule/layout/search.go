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
	rotates  bool    // its cycles are those of rotations
	group    []int32 // by allocation
	groups   int
	solution *placement.Solution
	align    func(int64) int64
	separate bool // every allocation was placed separately, so a proof for the problem is a proof for the program
}

const (
	// defaultWork is the work of the search on all ranks together, in the unit of
	// placement.Options.Nodes, about a microsecond.
	defaultWork = 1_200_000
	// cycles is the number of rotations to try after the shortest cycle. A large program gets one
	// rotation, and the shortest cycle only if it has none. It is large if its births are more
	// than an eighth of the work, or more than both maxTried and a 64th of the work.
	cycles   = 4
	maxTried = 10_000
	// excessDivisor: in a large program, a layout whose excess is below 1/excessDivisor of
	// the live bytes is low enough.
	excessDivisor = 100
	// maxSearched is the largest number of buffers of a program that is searched for a
	// smaller excess than that.
	maxSearched = 5_000
	// maxUnrolled is the largest number of births of a program with few repeats that is also
	// laid out without a cycle. It is maxUnrolledHigh if the excess is above 1/excessDivisor.
	maxUnrolled, maxUnrolledHigh = 1 << 14, 1 << 16
)

// search looks for a layout of a rank's program whose height is the peak of its live bytes. It
// stops at the first layout that is low enough. It lays out a program that is not large with the
// shortest cycle; then the program with rotations; then a short program with every repeat played.
// At last it spends the remaining work on the best of these, unless that is large and its excess
// is small.
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
	if births := int64(len(shortest.played.allocations)); shortest.separate || births <= left/8 && births <= max(maxTried, left/64) {
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
	if best.excess() > best.played.peakBytes()/excessDivisor {
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
	if len(best.played.allocations) > maxSearched && best.excess() <= best.played.peakBytes()/excessDivisor {
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

// play plays the program of a rank to its end, and groups the allocations that share an offset. If
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
	a.separate = a.groups == len(a.played.allocations)
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
	for i := range p.allocations {
		in[p.allocations[i].position.segment]++
	}
	for s, span := range p.spans {
		repeats := int64(p.program[s].Repeat)
		births += in[s] * repeats / (repeats - int64(span.skipped))
	}
	return births + in[len(p.spans)]
}

// place has the groups laid out with this amount of work, and keeps the layout if it is lower.
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
func (a *attempt) excess() int64 { return a.solution.Height - a.played.peakBytes() }

// optimal reports whether the layout meets the lower bound.
func (a *attempt) optimal() bool {
	return roundUp(a.solution.Height, leastAlign) == a.played.heightBound()
}
