package layout

import (
	"cmp"
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// attempt is a program as it was played, and a layout of it.
type attempt struct {
	played *player
	group  []int32 // by item
	groups int
	laid   *placement.Layout
	align  func(int64) int64
	untied bool               // every item was placed by itself, so that what is proven of the problem is proven of the program
	placed *placement.Problem // what was laid out, nil where it is not kept
	rounds []*steady          // of what lies in size classes: the program was cut
}

const (
	// defaultWork is how much search there is for all ranks together, counted as
	// placement.Options.Nodes are: a unit is about a microsecond.
	defaultWork = 1_200_000
	// near and far are how many births are laid out to see whether the layout comes back.
	near, far = 1 << 13, 1 << 15
	// A program whose best cycle leaves more than a part of bearable is laid out whole,
	// where it has no more than so many births, and than there is work.
	bearable = 50
	unrolled = 1 << 19
	// large is how many births make a program too large for a search, if not more than a
	// 64th of the work. Where classes leave more than a part of tolerable, a greedy way is
	// tried as well.
	large     = 10_000
	tolerable = 16
)

// search looks for a layout of a rank's program as low as the most that is alive at once.
// What repeats has the same offsets again after a cycle. The shortest cycles are laid out
// in a quick way first. Where that does not meet the bound, a layout is looked for that
// repeats itself though nothing is tied; and where even that leaves much room unused, a
// program that is not too long is laid out without any cycle. What is too large for all of
// that lies in size classes.
func (p *Plan) search(ctx context.Context, ports *ports, rank int) (*attempt, error) {
	left := p.cfg.Search.Nodes
	if left == 0 {
		left = int64(defaultWork / len(p.Ranks))
	}
	share := left / 8
	var tried []*attempt
	best := func() *attempt { return lowest(tried) }
	a, err := p.play(ports, rank)
	if err != nil {
		return nil, err
	}
	pieces := int64(len(a.played.items))
	searched := pieces <= share && pieces <= max(large, left/64)
	if !searched && !a.untied {
		classed, err := p.sizeClasses(ctx, a.played)
		if err != nil {
			return nil, err
		}
		if classed != nil {
			tried = append(tried, classed)
		}
	}
	if len(tried) == 0 || best().lost() > best().played.most()/tolerable {
		if err := a.place(ctx, a.played.alignment(), p.cfg.Search, min(pieces, share)); err != nil {
			return nil, err
		}
		tried = append(tried, a)
	}
	recurs := false // a layout came back though nothing was tied
	if !a.untied {
		tries := []recurrence{{near, 1}, {far, 1}, {near, share}}
		switch {
		case !searched && left >= far: // one greedy way, where the classes lose much
			tries = tries[1:2]
		case !searched:
			tries = nil
		}
		for _, try := range tries {
			if best().enough() || try.births == far && recurs || !searched && best().lost() <= best().played.most()/bearable {
				continue
			}
			again, err := p.recur(ctx, ports, rank, a.played, p.cfg.Search, try.births, try.work)
			if err != nil {
				return nil, err
			}
			if again != nil {
				recurs = true
				tried = append(tried, again)
			}
		}
	}
	if !best().enough() && !a.untied && !recurs {
		whole, err := p.whole(ctx, ports, rank, best(), min(left, unrolled))
		if whole != nil || err != nil {
			return whole, err
		}
	}
	if !a.untied { // the first search was thorough
		a = best()
	}
	for _, align := range a.alignments() {
		if best().enough() || left <= 0 {
			break
		}
		if err := a.place(ctx, align, p.cfg.Search, left); err != nil {
			return nil, err
		}
		left /= 2
	}
	return best(), nil
}

// recurrence is an attempt at a layout that comes back: for about so many births, with so
// much work.
type recurrence struct {
	births int
	work   int64
}

// lowest returns the best attempt.
func lowest(tried []*attempt) *attempt {
	return slices.MinFunc(tried, func(a, b *attempt) int { return cmp.Compare(a.laid.Height, b.laid.Height) })
}

// whole lays out a program without leaps, by one greedy way: nil where that is not worth
// it, or does not come out lower.
func (p *Plan) whole(ctx context.Context, ports *ports, rank int, best *attempt, work int64) (*attempt, error) {
	var births int64
	for s, span := range best.played.spans {
		repeats := best.played.program[s].Repeat
		births += int64(best.played.births(s)) * int64(repeats) / int64(repeats-span.passed)
	}
	most := best.played.most()
	if best.lost() <= most/bearable || births > work || p.cfg.Shapes != nil {
		return nil, nil
	}
	a := &attempt{played: newPlayer(p.plan, p.templates, ports, rank, &p.cfg)}
	if err := a.played.play(); err != nil {
		return nil, err
	}
	a.group, a.groups = a.played.ties()
	a.untied = a.groups == len(a.played.items)
	if err := a.place(ctx, a.played.alignment(), p.cfg.Search, 1); err != nil || a.laid.Height >= best.laid.Height {
		return nil, err
	}
	return a, nil
}

// births returns how many items are born in a segment.
func (p *player) births(segment int) (n int) {
	for i := range p.items {
		if int(p.items[i].place.segment) == segment {
			n++
		}
	}
	return n
}

// place looks for a lower layout with so much work.
func (a *attempt) place(ctx context.Context, align func(int64) int64, search placement.Options, work int64) error {
	search.Nodes = max(work, 1)
	laid, err := placement.Plan(ctx, a.problem(align), search)
	if err != nil {
		return err
	}
	if a.laid == nil || laid.Height < a.laid.Height {
		a.laid, a.align = laid, align
	}
	return nil
}

// play plays the program of a rank, with the shortest cycles.
func (p *Plan) play(ports *ports, rank int) (*attempt, error) {
	if p.cfg.Shapes != nil {
		return p.playLeaps(ports, rank, nil)
	}
	return p.playLeaps(ports, rank, &leap{})
}

// playLeaps plays the program of a rank with leaps of a kind, and ties what comes back.
func (p *Plan) playLeaps(ports *ports, rank int, leaps *leap) (*attempt, error) {
	a := &attempt{played: newPlayer(p.plan, p.templates, ports, rank, &p.cfg)}
	a.played.leap = leaps
	if err := a.played.play(); err != nil {
		return nil, err
	}
	a.group, a.groups = a.played.ties()
	a.untied = a.groups == len(a.played.items)
	return a, nil
}

// playFree plays the program with leaps of given ways, and ties nothing.
func (p *Plan) playFree(ports *ports, rank int, ways map[int]way) (*attempt, error) {
	a := &attempt{played: newPlayer(p.plan, p.templates, ports, rank, &p.cfg)}
	a.played.leap = &leap{ways: ways}
	if err := a.played.play(); err != nil {
		return nil, err
	}
	a.groups = len(a.played.items)
	a.group = make([]int32, a.groups)
	for i := range a.group {
		a.group[i] = int32(i)
	}
	return a, nil
}

// problem returns the problem of placing the groups.
func (a *attempt) problem(align func(int64) int64) *placement.Problem {
	return a.played.problem(a.group, a.groups, align)
}

// lost returns how much higher the layout is than what is alive.
func (a *attempt) lost() int64 { return a.laid.Height - a.played.most() }

// met reports whether the layout is as low as can be.
func (a *attempt) met() bool { return roundUp(a.laid.Height, leastAlign) == a.played.least() }
