package layout

import (
	"cmp"
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// Where many microbatches are in flight, most of what is alive is of a few sizes and kept
// for long. For that there is a layout without a search, in time that is linear in the
// program: what dies in the action in which it was born lies in a room of its own, which
// is packed once for each kind of action; all else lies in size classes,
// where it takes turns. What is lost is what an action could have put into places of the
// classes that are free, and what the classes have too many: a few percent where many are
// in flight, much where it is one or two.

const (
	// longestTurns is the longest cycle that is tried for what lies in size classes, in
	// repeats, and mostInClasses how much is born at most where it is not the shortest one.
	longestTurns  = 64
	mostInClasses = 90_000
	// tooManyForClasses is how much is born in the shortest cycle where even that takes long.
	tooManyForClasses = 4 * mostInClasses
	// A cycle is good enough by which no more is lost than a part of lostInClasses.
	lostInClasses = 100
	// packing is how often what dies in its action is laid out.
	packing = 4
)

// sizeClasses lays out a program that was played with the shortest cycles: what goes on lies in
// classes, and the ends stand in its places. Nil is where nothing goes on, or the ends do
// not fit.
func (p *Plan) sizeClasses(ctx context.Context, short *player) (*attempt, error) {
	var rounds []*steady
	for s := range short.spans {
		if short.spans[s].passed == 0 {
			continue
		}
		round := short.steady(s, short.alignment())
		if round == nil || round.lives()*len(round.Buffers) > tooManyForClasses {
			return nil, nil
		}
		if err := round.inSizeClasses(ctx, short); err != nil || round.laid == nil {
			return nil, err
		}
		rounds = append(rounds, round)
	}
	if len(rounds) == 0 {
		return nil, nil
	}
	cut, last := short.cut(rounds)
	a := &attempt{played: cut, groups: len(cut.items), rounds: rounds, align: short.alignment()}
	a.group = make([]int32, a.groups)
	base, cyclic := make([]int64, a.groups), make([]bool, a.groups)
	for g := range base {
		a.group[g], base[g] = int32(g), -1
	}
	for _, round := range rounds {
		for k, i := range round.kept {
			round.kept[k] = last[i]
		}
		round.stand(a, base)
	}
	for _, round := range rounds {
		round.come(cut, base, cyclic)
	}
	a.thin(base, cyclic)
	for i := range base {
		if cyclic[i] && base[i] < 0 { // two of them at one place, or one that is none of the round
			return nil, nil
		}
	}
	problem := a.problem(a.align)
	fill(problem, base)
	now := int64(len(cut.log))
	for _, round := range rounds {
		now = round.lap(problem, &base, cut, now)
	}
	height, err := placement.Check(problem, base)
	if err != nil { // what stands overlaps
		return nil, nil
	}
	a.laid = &placement.Layout{Offsets: base, Height: height, Method: "size classes, and a room for what dies in its action"}
	a.placed = problem
	return a, nil
}

// thin frees what stands where something else is alive, but for what is of a cycle.
func (a *attempt) thin(base []int64, cyclic []bool) {
	numbers, place := map[int64]int32{}, make([]int32, a.groups) // of the offset of each group
	for g, at := range base {
		n, known := numbers[at]
		if !known {
			n = int32(len(numbers))
			numbers[at] = n
		}
		place[g] = n
	}
	const free = -1
	there := slices.Repeat([]int32{free}, len(numbers)) // the group that lies at each of them
	for _, change := range a.played.log {
		i := change
		if change < 0 {
			i = ^change
		}
		g := a.group[i]
		if base[g] < 0 {
			continue
		}
		switch other := &there[place[g]]; {
		case change < 0:
			if *other == g {
				*other = free
			}
		case *other == free:
			*other = g
		case cyclic[*other] && !cyclic[g]:
			base[g] = -1
		default:
			*other, base[*other] = g, -1
		}
	}
}

// inSizeClasses lays out a round, for the cycle that takes the fewest bytes or a shorter one that
// takes little more.
func (s *steady) inSizeClasses(ctx context.Context, p *player) error {
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
	classes := s.classes(p, at)
	splits := make([][]split, len(sizes))
	for k, size := range sizes {
		splits[k] = s.splits(own[size], classes, max(longestTurns, least))
	}
	repeats := p.program[s.segment].Repeat - p.spans[s.segment].lead - p.spans[s.segment].tail
	low, enough := int64(0), s.alive()+s.alive()/lostInClasses
	fewest := room // of which no class has a place too many
	for k, size := range sizes {
		fewest = s.above(fewest, own[size][0]) + s.stride(own[size][0])*int64(splits[k][0].queues[0].most-1) + size
	}
	enough = max(enough, fewest)
	var best [][]chain // by size
	took := 0          // repeats
	for periods := least; periods <= min(max(longestTurns, least), repeats); periods++ {
		if best != nil && (low <= enough || periods*n > mostInClasses) {
			break
		}
		inClass, height := make([][]chain, len(sizes)), room
		for k, size := range sizes {
			inClass[k] = s.turns(splits[k], periods)
			height = s.above(height, own[size][0]) + s.stride(own[size][0])*int64(count(inClass[k])-1) + size
		}
		if best == nil || height < low {
			best, took, low = inClass, periods, height
		}
	}
	if best == nil {
		return nil
	}
	s.laid = &cycle{Cycle: took, Offsets: make([]int64, took*n), Height: room}
	for i, at := range at {
		for k := range took {
			s.laid.Offsets[k*n+i] = at
		}
	}
	for k, size := range sizes {
		stride, base := s.stride(own[size][0]), s.above(s.laid.Height, own[size][0])
		places := 0
		for _, c := range best[k] {
			for _, turn := range c.turns {
				for k := range took { // it begins in period k-turn.period
					place := places + ((k-turn.period)%c.places+c.places)%c.places
					s.laid.Offsets[k*n+int(turn.buffer)] = base + int64(place)*stride
				}
			}
			places += c.places
		}
		s.laid.Height = base + int64(places-1)*stride + size
	}
	return nil
}

// above returns where a class begins for buffers like this one, behind a height.
func (s *steady) above(height int64, buffer int32) int64 {
	return roundUp(height, s.Buffers[buffer].Align)
}

// stride returns how far apart buffers like this one lie in a class.
func (s *steady) stride(buffer int32) int64 {
	return roundUp(s.Buffers[buffer].Size, s.Buffers[buffer].Align)
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
