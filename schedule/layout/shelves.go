package layout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// Where many microbatches are in flight, most of what is alive is of a few sizes and kept
// for long. For that there is a layout without a search, in time that is linear in the
// program: what dies in the action in which it was born lies in a room of its own, which
// is packed once for each kind of action; all else lies on shelves, one for each size,
// where it takes turns. What is lost is what an action could have put into places of the
// shelves that are free, and what the shelves have too many: a few percent where many are
// in flight, much where it is one or two.

const (
	// longestTurns is the longest cycle that is tried for what lies on shelves, in
	// repeats, and mostOnShelves how much is born at most where it is not the shortest one.
	longestTurns  = 64
	mostOnShelves = 80_000
	// tooManyForShelves is how much is born in the shortest cycle where even that takes long.
	tooManyForShelves = 4 * mostOnShelves
	// A cycle is good enough by which no more is lost than a part of lostOnShelves.
	lostOnShelves = 32
	// packing is how often what dies in its action is laid out.
	packing = 4
)

// shelve lays out a program that was played with the shortest cycles: what goes on lies on
// shelves, and the ends stand in its places. Nil is where nothing goes on, or the ends do
// not fit.
func (p *Plan) shelve(ctx context.Context, ports *ports, rank int, short *player) (*attempt, error) {
	var all []*steady
	cycles := map[int]int{}
	for s := range short.spans {
		round := short.steady(s, short.alignment())
		if round == nil {
			continue
		}
		if short.played(s, round.lives())*len(round.Buffers) > tooManyForShelves {
			return nil, nil
		}
		if err := round.shelves(ctx, short); err != nil {
			return nil, err
		}
		all, cycles[s] = append(all, round), round.laid.Cycle
	}
	if len(all) == 0 {
		return nil, nil
	}
	a, err := p.playLeaps(ports, rank, &leap{cycles: cycles})
	if err != nil {
		return nil, err
	}
	base := make([]int64, a.groups)
	for g := range base {
		base[g] = -1
	}
	for _, round := range all {
		if a.played.spans[round.segment].passed == 0 {
			return nil, nil
		}
		round.stand(a, base)
	}
	a.thin(base)
	a.align = a.played.alignment()
	problem := a.problem(a.align)
	a.laid, err = around(ctx, problem, placement.Options{Fixed: base, Nodes: 1})
	if errors.Is(err, placement.ErrProblem) { // what stands overlaps
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if _, err := placement.Check(problem, a.laid.Offsets); err != nil { // far from what was placed around it
		return nil, nil
	}
	a.laid.Method = all[0].laid.Method
	return a, nil
}

// thin frees what stands where something else is alive.
func (a *attempt) thin(base []int64) {
	tied := a.tied()
	at := map[int64]int32{} // the group that lies there
	for _, change := range a.played.log {
		i := change
		if change < 0 {
			i = ^change
		}
		g := a.group[i]
		other, busy := at[base[g]]
		switch {
		case base[g] < 0:
		case change < 0:
			if other == g {
				delete(at, base[g])
			}
		case !busy:
			at[base[g]] = g
		case tied[other] && !tied[g]:
			base[g] = -1
		default:
			at[base[g]], base[other] = g, -1
		}
	}
}

// shelves lays out a round, for the cycle that takes the fewest bytes or a shorter one that
// takes little more.
func (s *steady) shelves(ctx context.Context, p *player) error {
	room, at, err := s.room(ctx, p)
	if err != nil {
		return err
	}
	own := map[int64][]int32{} // of a size, in order of birth
	var sizes []int64
	for i, b := range s.Buffers {
		if at[i] >= 0 {
			continue
		}
		if own[b.Size] == nil {
			sizes = append(sizes, b.Size)
		}
		own[b.Size] = append(own[b.Size], int32(i))
	}
	slices.SortFunc(sizes, func(a, b int64) int { return cmp.Compare(b, a) })

	n, least := len(s.Buffers), s.lives()
	enough := s.alive() + s.alive()/lostOnShelves
	for cycle := least; cycle <= max(longestTurns, least) && (s.laid == nil || s.laid.Height > enough); cycle++ {
		if s.laid != nil && p.played(s.segment, cycle)*n > mostOnShelves {
			continue
		}
		l := &placement.RoundLayout{Cycle: cycle}
		l.Method = "a shelf for each size, and a room for what dies in its action"
		l.Height, l.Offsets = room, make([]int64, cycle*n)
		for i, at := range at {
			for k := range cycle {
				l.Offsets[k*n+i] = at
			}
		}
		for _, size := range sizes {
			align := s.Buffers[own[size][0]].Align
			stride, base := roundUp(size, align), roundUp(l.Height, align)
			places := 0
			for _, c := range s.shelf(own[size], cycle) {
				for _, turn := range c.turns {
					for k := range cycle { // it begins in period k-turn.period
						place := places + ((k-turn.period)%c.places+c.places)%c.places
						l.Offsets[k*n+int(turn.buffer)] = base + int64(place)*stride
					}
				}
				places += c.places
			}
			l.Height = base + int64(places-1)*stride + size
		}
		if s.laid == nil || l.Height < s.laid.Height {
			s.laid = l
		}
	}
	return nil
}

// played returns how many repeats of a segment are played with a cycle.
func (p *player) played(segment, cycle int) int {
	repeats, lead := p.program[segment].Repeat, p.spans[segment].lead
	return repeats - max(repeats-lead-cycle, 0)/cycle*cycle
}

// lives returns the longest life, in repeats.
func (s *steady) lives() (most int) {
	for i := range s.Buffers {
		most = max(most, int((s.life(int32(i))+s.Period-1)/s.Period))
	}
	return most
}

// alive returns the most bytes that are alive at once in the round.
func (s *steady) alive() int64 {
	var p placement.Problem
	for _, b := range s.Buffers {
		for ; b.Upper > s.Period; b.Upper -= s.Period {
			p.Buffers = append(p.Buffers, placement.Buffer{Lower: b.Lower, Upper: s.Period, Size: b.Size})
			b.Lower = 0
		}
		p.Buffers = append(p.Buffers, b)
	}
	return p.Bound()
}

// room packs what dies in the action in which it is born. It returns how many bytes that
// takes, and where each buffer lies: -1 for those that live longer.
func (s *steady) room(ctx context.Context, p *player) (height int64, at []int64, err error) {
	at = make([]int64, len(s.Buffers))
	packed := map[string][]int64{}
	first := 0 // buffer of the action
	for action := range p.actions(s.segment) {
		var problem placement.Problem
		var brief []int
		var key []byte
		for ; first < len(s.Buffers) && s.Buffers[first].Lower < action.end; first++ {
			b := s.Buffers[first]
			if at[first] = -1; b.Upper <= action.end {
				b.Lower, b.Upper = b.Lower-action.begin, b.Upper-action.begin
				problem.Buffers, brief = append(problem.Buffers, b), append(brief, first)
				key = fmt.Appendf(key, "%d-%d:%d ", b.Lower, b.Upper, b.Size)
			}
		}
		offsets, known := packed[string(key)]
		if !known && len(brief) > 0 {
			laid, err := placement.Plan(ctx, &problem, placement.Options{Nodes: packing * int64(len(brief))})
			if err != nil {
				return 0, nil, err
			}
			height, offsets = max(height, laid.Height), laid.Offsets
			packed[string(key)] = offsets
		}
		for k, i := range brief {
			at[i] = offsets[k]
		}
	}
	return height, at, nil
}

// stint is a time of a period, in changes.
type stint struct{ begin, end int64 }

// actions iterates over the times of the actions of the first repeat of a segment that is
// like those behind it.
func (p *player) actions(segment int) iter.Seq[stint] {
	return func(yield func(stint) bool) {
		var first, last int64
		for i, v := range p.visits {
			if int(v.at.segment) != segment || int(v.at.repeat) != p.spans[segment].lead {
				continue
			}
			if v.at.index == 0 {
				first, last = int64(v.since), 0
			}
			end := int64(len(p.log)) - first
			if i+1 < len(p.visits) {
				end = int64(p.visits[i+1].since) - first
			}
			if !yield(stint{last, end}) {
				return
			}
			last = end
		}
	}
}
