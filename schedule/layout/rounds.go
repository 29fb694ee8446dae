package layout

import (
	"context"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// What goes on and on is laid out first, alone, as if it had neither beginning nor end.
// What the program does at its ends is the same, in the same order, but without some of
// the microbatches: so it has its places already, up to a few buffers.

// rounds lays out the segments of a program that go on and on, and the rest of the
// program around them. The program was played with the shortest cycles. It returns nil
// where nothing goes on, or a cycle does not fit into the program.
func (p *Plan) rounds(ctx context.Context, ports *ports, rank int, short *attempt, search placement.Options, work int64) (*attempt, error) {
	search.Capacity, search.Nodes = short.played.most(), max(work/2, 1)
	all := map[int]*steady{}
	cycles := map[int]int{}
	method := ""
	for s := range short.played.spans {
		round := short.played.steady(s, natural)
		if round == nil {
			continue
		}
		laid, err := placement.PlanRound(ctx, &round.Round, search)
		if err != nil {
			return nil, err
		}
		round.laid = laid
		all[s], cycles[s], method = round, laid.Cycle, laid.Method
	}
	a, err := p.playLeaps(ports, rank, &leap{cycles: cycles})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	a.align = natural
	base := make([]int64, a.groups)
	for g := range base {
		base[g] = -1
	}
	for s, round := range all {
		if a.played.spans[s].passed == 0 {
			return nil, nil
		}
		round.stand(a, s, base)
	}
	a.clash(base)
	problem := a.problem(natural)
	search.Fixed = slices.Clone(base)
	for near := int32(0); a.laid == nil || a.laid.Height > search.Capacity && near <= farthest; near = max(2*near, nearest) {
		search.Nodes = max(work/8, 1)
		a.loosen(base, search.Fixed, near)
		laid, err := placement.Plan(ctx, problem, search)
		if err != nil {
			return nil, err
		}
		if a.laid == nil || laid.Height < a.laid.Height {
			a.laid = laid
		}
	}
	a.laid.Method = "what goes on: " + method + "; its ends: " + a.laid.Method
	return a, nil
}

// nearest and farthest are how many changes around a buffer that has no place others
// give up theirs, first and last.
const (
	nearest  = 8
	farthest = 256
)

// loosen frees what is born near to what is free, but for what is tied.
func (a *attempt) loosen(base, fixed []int64, near int32) {
	tied := a.tied()
	var births []int32
	for i, g := range a.group {
		if base[g] < 0 {
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
func (s *steady) stand(a *attempt, segment int, fixed []int64) {
	p := a.played
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
		return s.laid.Offsets[phase*n+buffer]
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
	for k, i := range s.kept {
		fixed[a.group[i]] = s.laid.Offsets[n-len(s.kept)+k]
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
