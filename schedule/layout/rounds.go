package layout

import (
	"cmp"
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// What goes on and on is laid out first, alone, as if it had neither beginning nor end.
// What the program does at its ends is the same, in the same order, but without some of
// the microbatches: so it has its places already, up to a few buffers.

// rounds lays out the segments of a program that go on and on, and the rest of the
// program around them. The program was played with the shortest cycles. It returns nil
// where nothing goes on, or a cycle does not fit into the program. Low says that what goes
// on lies as low as can be.
func (p *Plan) rounds(ctx context.Context, ports *ports, rank int, short *attempt, search placement.Options, work int64) (a *attempt, low bool, err error) {
	search.Capacity, search.Nodes = short.played.least(), max(work/3*2, 1)
	var all []*steady
	cycles := map[int]int{}
	for s := range short.played.spans {
		round := short.played.steady(s, short.played.alignment())
		if round == nil {
			continue
		}
		above := search
		above.Capacity -= round.floor
		if round.laid, err = placement.PlanRound(ctx, &round.Round, above); err != nil {
			return nil, false, err
		}
		all, cycles[s] = append(all, round), round.laid.Cycle
		search.Capacity = max(search.Capacity, round.floor+round.laid.Height)
	}
	if len(all) == 0 {
		return nil, false, nil
	}
	if a, err = p.playLeaps(ports, rank, &leap{cycles: cycles}); err != nil {
		return nil, false, err
	}
	base := make([]int64, a.groups)
	for g := range base {
		base[g] = -1
	}
	for _, round := range all {
		if a.played.spans[round.segment].passed == 0 {
			return nil, false, nil
		}
		round.stand(a, base)
	}
	a.clash(base)
	search.Nodes = max(work/16, 1)
	if err := a.ends(ctx, base, search); err != nil {
		return nil, false, err
	}
	a.laid.Method = "what goes on: " + all[0].laid.Method + "; its ends: " + a.laid.Method
	return a, search.Capacity == short.played.least(), nil
}

// ends places what has no place around the rest. What is born near to it gives up its
// place as well, further and further away, until all fits.
func (a *attempt) ends(ctx context.Context, base []int64, search placement.Options) error {
	a.align = a.played.alignment()
	problem := a.problem(a.align)
	for near := int32(0); a.laid == nil || a.laid.Height > search.Capacity && near <= farthest; near = max(2*near, nearest) {
		search.Fixed = slices.Clone(base)
		a.loosen(search.Fixed, near)
		laid, err := around(ctx, problem, search)
		if err != nil {
			return err
		}
		if a.laid == nil || laid.Height < a.laid.Height {
			a.laid = laid
		}
	}
	return nil
}

// around lays out a problem most of which is fixed: what is fixed and lives at no time
// of what is not is left out.
func around(ctx context.Context, problem *placement.Problem, search placement.Options) (*placement.Layout, error) {
	type span struct{ lower, upper int64 }
	var busy []span                     // times of what is free, ascending
	for g, b := range problem.Buffers { // in order of birth
		if search.Fixed[g] >= 0 {
			continue
		}
		if n := len(busy); n > 0 && b.Lower <= busy[n-1].upper {
			busy[n-1].upper = max(busy[n-1].upper, b.Upper)
		} else {
			busy = append(busy, span{b.Lower, b.Upper})
		}
	}
	offsets, height := search.Fixed, int64(0)
	var part placement.Problem
	var fixed []int64
	var groups []int
	for g, b := range problem.Buffers {
		k, _ := slices.BinarySearchFunc(busy, b.Lower, func(s span, lower int64) int { return cmp.Compare(s.upper, lower+1) })
		if k < len(busy) && busy[k].lower < b.Upper {
			part.Buffers, fixed, groups = append(part.Buffers, b), append(fixed, offsets[g]), append(groups, g)
		}
	}
	search.Fixed = fixed
	laid, err := placement.Plan(ctx, &part, search)
	if err != nil {
		return nil, err
	}
	for k, g := range groups {
		offsets[g] = laid.Offsets[k]
	}
	for g, at := range offsets {
		height = max(height, at+problem.Buffers[g].Size)
	}
	return &placement.Layout{Offsets: offsets, Height: height, Method: laid.Method}, nil
}

// nearest and farthest are how many changes around a buffer that has no place others
// give up theirs, first and last.
const (
	nearest  = 8
	farthest = 256
)

// loosen frees what is born near to what is free, but for what is tied.
func (a *attempt) loosen(fixed []int64, near int32) {
	tied := a.tied()
	var births []int32
	for i, g := range a.group {
		if fixed[g] < 0 {
			births = append(births, a.played.items[i].birth)
		}
	}
	for i, g := range a.group {
		if tied[g] {
			continue
		}
		from, _ := slices.BinarySearch(births, a.played.items[i].birth-near)
		if from < len(births) && births[from] <= a.played.items[i].birth+near {
			fixed[g] = -1
		}
	}
}

// tied says which groups are of several items.
func (a *attempt) tied() []bool {
	tied, seen := make([]bool, a.groups), make([]bool, a.groups)
	for _, g := range a.group {
		tied[g], seen[g] = seen[g], true
	}
	return tied
}

// stand gives the items of a program the offsets of those that they stand for in a round
// without beginning or end: what is of the same microbatch there. The real program does
// the same things in the same order, and less: there are no microbatches before the first
// one, and none behind the last. So what does not overlap there does not overlap here,
// but for a few things that are done at another time at the ends.
func (s *steady) stand(a *attempt, fixed []int64) {
	p, segment := a.played, s.segment
	span, stride := p.spans[segment], p.program[segment].Stride
	n := len(s.Buffers)
	type kin struct {
		kind         originKind
		stage, index int32
	}
	type virtual struct{ buffer, microbatch int } // of repeat 0
	kins := map[kin][]virtual{}
	for i := range p.items {
		it := &p.items[i]
		if int(it.place.segment) != segment || int(it.repeat) != span.lead {
			continue
		}
		o := it.origin
		k := kin{o.kind, o.stage, o.index}
		kins[k] = append(kins[k], virtual{s.births[birth{it.place.index, it.ordinal}], int(o.microbatch) - int(it.place.repeat)*stride})
	}
	offset := func(repeat, buffer int) int64 {
		phase := (repeat - span.lead) % span.cycle
		if phase < 0 {
			phase += span.cycle
		}
		return s.floor + s.laid.Offsets[phase*n+buffer]
	}
	for i := range p.items {
		it := &p.items[i]
		if o := it.origin; o.microbatch >= 0 && stride != 0 {
			for _, v := range kins[kin{o.kind, o.stage, o.index}] {
				if away := int(o.microbatch) - v.microbatch; away%stride == 0 && p.items[i].bytes == s.Buffers[v.buffer].Size {
					fixed[a.group[i]] = offset(away/stride, v.buffer)
				}
			}
		}
	}
	at := int64(0)
	for _, i := range s.kept {
		fixed[a.group[i]] = at
		at += roundUp(p.items[i].bytes, line)
	}
}

// clash frees what overlaps something else.
func (a *attempt) clash(fixed []int64) {
	p := a.played
	tied := a.tied()
	var alive []int32
	for _, change := range p.log {
		if change < 0 {
			alive = slices.DeleteFunc(alive, func(i int32) bool { return i == ^change })
			continue
		}
		g := a.group[change]
		at, end := fixed[g], fixed[g]+p.items[change].bytes
		if at < 0 {
			continue
		}
		for k := 0; k < len(alive); k++ {
			h := a.group[alive[k]]
			if fixed[h] < 0 || fixed[h] >= end || fixed[h]+p.items[alive[k]].bytes <= at {
				continue
			}
			if tied[h] && !tied[g] {
				fixed[g] = -1
				break
			}
			fixed[h] = -1
		}
		if fixed[g] >= 0 {
			alive = append(alive, change)
		}
	}
}
