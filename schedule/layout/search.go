package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// attempt is a program as it was played, and a layout of it.
type attempt struct {
	played *player
	turned bool    // buffers of one size take turns
	group  []int32 // by item
	groups int
	laid   *placement.Solution
	align  func(int64) int64
	untied bool // every item was placed by itself, so that what is proven of the problem is proven of the program
}

const (
	// defaultWork is how much search there is for all ranks together, counted as
	// placement.Options.Nodes are: a unit is about a microsecond.
	defaultWork = 1_200_000
	// large is how many births make a program too large for a search, if not more than a
	// 64th of the work.
	large = 10_000
	// cycles is how many cycles of turns are tried of a program that is not large.
	cycles = 4
	// A program of few repeats is laid out whole that has no more than short births, or no
	// more than long ones where more than a part of bearable is lost.
	short, long = 1 << 14, 1 << 16
	bearable    = 100
)

// search looks for a layout of a rank's program as low as the most that is alive at once.
// What repeats has the same offsets again after a cycle. A program that is not large is laid
// out with the shortest cycle first. Where that does not meet the bound, and where it is
// large, buffers of one size take turns at few places, for which a cycle is chosen; and where
// even that leaves room unused, a short program is laid out without any cycle.
func (p *Memory) search(ctx context.Context, ports *ports, rank int) (*attempt, error) {
	left := p.cfg.Search.Nodes
	if left == 0 {
		left = int64(defaultWork / len(p.Ranks))
	}
	share := left / 8
	shortest, err := p.play(ports, rank, nil)
	if err != nil {
		return nil, err
	}
	var best *attempt
	try := func(a *attempt, work int64) error {
		err := a.place(ctx, a.played.alignment(), p.cfg.Search, work)
		if err == nil && (best == nil || a.laid.Height < best.laid.Height) {
			best = a
		}
		return err
	}
	pieces := int64(len(shortest.played.items))
	tries, work := 1, int64(1) // of turns
	if shortest.untied || pieces <= share && pieces <= max(large, left/64) {
		if err := try(shortest, min(pieces, share)); err != nil {
			return nil, err
		}
		tries, work = cycles, share/4
	}
	for nth, placed := 0, 0; nth < tries && placed < mostTurns && !shortest.untied && !best.enough(); nth++ {
		turns := shortest.played.turns(nth)
		if turns == nil {
			break
		}
		a, err := p.play(ports, rank, turns)
		if err != nil {
			return nil, err
		}
		placed += len(a.played.items)
		if err := try(a, work); err != nil {
			return nil, err
		}
	}
	if best == nil {
		if err := try(shortest, 1); err != nil {
			return nil, err
		}
	}
	births := int64(short)
	if best.lost() > best.played.most()/bearable {
		births = long
	}
	if !shortest.untied && !best.enough() && shortest.played.fewRepeats() && shortest.played.unrolled() <= births {
		a := &attempt{played: newPlayer(p.plan, p.profile, ports, rank, &p.cfg)}
		if err := a.play(nil); err != nil {
			return nil, err
		}
		if err := try(a, 4*work); err != nil {
			return nil, err
		}
	}
	if len(best.played.items) > large/2 && best.lost() <= best.played.most()/bearable {
		return best, nil // a search would take seconds, for less than that
	}
	for _, align := range best.alignments() {
		if best.enough() || left <= 0 {
			break
		}
		if err := best.place(ctx, align, p.cfg.Search, left); err != nil {
			return nil, err
		}
		left /= 2
	}
	return best, nil
}

// play plays the program of a rank with repeats skipped, for the shortest cycles or those of turns.
func (p *Memory) play(ports *ports, rank int, turns map[int]*turns) (*attempt, error) {
	a := &attempt{played: newPlayer(p.plan, p.profile, ports, rank, &p.cfg), turned: turns != nil}
	if p.cfg.Shapes == nil {
		a.played.skip = &skipper{cycles: map[int]int{}}
		for segment, t := range turns {
			a.played.skip.cycles[segment] = t.cycle
		}
	}
	return a, a.play(turns)
}

// play plays the program to its end, and ties what comes back.
func (a *attempt) play(turns map[int]*turns) error {
	if err := a.played.play(); err != nil {
		return err
	}
	a.group, a.groups = a.played.ties(turns)
	a.untied = a.groups == len(a.played.items)
	return nil
}

// fewRepeats reports whether no segment has as many repeats as the longest cycle of turns.
func (p *player) fewRepeats() bool {
	return !slices.ContainsFunc(p.program, func(s schedule.Segment) bool { return s.Repeat > longestCycle })
}

// unrolled returns how many births there are in the whole program, all repeats counted.
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

// place looks for a lower layout with so much work.
func (a *attempt) place(ctx context.Context, align func(int64) int64, search placement.Options, work int64) error {
	search.Nodes = max(work, 1)
	laid, err := placement.Solve(ctx, a.problem(align), search)
	if err != nil {
		return err
	}
	if a.laid == nil || laid.Height < a.laid.Height {
		a.laid, a.align = laid, align
	}
	return nil
}

// problem returns the problem of placing the groups.
func (a *attempt) problem(align func(int64) int64) *placement.Problem {
	return a.played.problem(a.group, a.groups, align)
}

// lost returns how much higher the layout is than what is alive.
func (a *attempt) lost() int64 { return a.laid.Height - a.played.most() }

// met reports whether the layout is as low as can be.
func (a *attempt) met() bool { return roundUp(a.laid.Height, leastAlign) == a.played.least() }
