package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// What goes on and on is laid out first, alone, as if it had neither beginning nor end.
// What the program does at its ends is the same, in the same order, but without some of
// the microbatches: so it has its places already, up to a few buffers.

// rounds lays out the segments of a program that go on and on, each alone. The program was
// played with the shortest cycles. It returns none where nothing goes on.
func (p *Plan) rounds(ctx context.Context, ports *ports, rank int, short *attempt, search placement.Options) (all []*steady, err error) {
	search.Capacity = short.played.least()
	for s := range short.played.spans {
		round := p.goesOn(ports, rank, short, s)
		if round == nil {
			continue
		}
		above := search
		above.Capacity -= round.floor
		if round.laid, err = placement.PlanRound(ctx, &round.Round, above); err != nil {
			return nil, err
		}
		all = append(all, round)
		search.Capacity = max(search.Capacity, round.height())
	}
	return all, nil
}

// height returns the height of a round with what lies below it.
func (s *steady) height() int64 { return s.floor + s.laid.Height }

// goesOn returns what a segment goes on with, nil where it does not. Segments that are too
// short to be passed over count where nothing else is.
func (p *Plan) goesOn(ports *ports, rank int, short *attempt, segment int) *steady {
	played, align := short.played, short.played.alignment()
	if !short.untied && played.spans[segment].passed == 0 {
		return nil
	}
	if played.spans[segment].alike == 0 {
		if played = p.further(ports, rank, segment); played == nil {
			return nil
		}
	}
	return played.steady(segment, align)
}

// low reports whether rounds lie as low as the program can.
func (a *attempt) low(all []*steady) bool {
	return !slices.ContainsFunc(all, func(s *steady) bool { return s.height() > a.played.least() })
}

// sameRounds reports whether two layouts of the same rounds are the same.
func sameRounds(all, others []*steady) bool {
	return slices.EqualFunc(all, others, func(a, b *steady) bool { return slices.Equal(a.laid.Offsets, b.laid.Offsets) })
}

// mostWithin is how much is born in two cycles of what goes on, at most.
const mostWithin = 1 << 16

// within lays out a program within the rounds of what goes on in it, nil where that is too
// much. Where it is longer than some cycles of them, it is played with leaps.
func (p *Plan) within(ctx context.Context, ports *ports, rank int, all []*steady, search placement.Options) (*attempt, error) {
	cycles, births := map[int]int{}, 0
	for _, round := range all {
		cycles[round.segment] = round.laid.Cycle
		births += min(2*round.laid.Cycle, p.plan.Programs[rank][round.segment].Repeat) * len(round.Buffers)
	}
	if births == 0 || births > mostWithin {
		return nil, nil
	}
	a, err := p.playLeaps(ports, rank, &leap{cycles: cycles})
	if err != nil {
		return nil, err
	}
	a.untied = false // its items are placed by where they stand
	search.Capacity = a.played.least()
	base := make([]int64, a.groups)
	for g := range base {
		base[g] = -1
	}
	for _, round := range all {
		round.stand(a, base)
		search.Capacity = max(search.Capacity, round.height())
	}
	a.clash(base)
	if err := a.ends(ctx, base, search); err != nil {
		return nil, err
	}
	a.laid.Method = "what goes on: " + all[0].laid.Method + "; its ends: " + a.laid.Method
	return a, nil
}
