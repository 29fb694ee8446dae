package layout

import (
	"context"

	"github.com/weir-ml/weir/memory/placement"
)

// around looks for a layout in two steps: first of one cycle alone, which is a small
// problem that can be searched well, and then of what comes before and after it, around
// the cycle.
func (a *attempt) around(ctx context.Context, search placement.Options, work int64) error {
	segment := -1
	for s, span := range a.played.spans {
		if span.cycle > 0 && (segment < 0 || span.passed > a.played.spans[segment].passed) {
			segment = s
		}
	}
	if segment < 0 {
		return nil
	}
	problem, of := a.played.steady(segment, a.group, a.align)
	search.Nodes = max(work/2, 1)
	laid, err := placement.Plan(ctx, problem, search)
	if err != nil || laid.Height >= a.laid.Height {
		return err
	}
	search.Fixed = make([]int64, a.groups)
	for g := range search.Fixed {
		search.Fixed[g] = -1
	}
	for i, g := range of {
		search.Fixed[g] = laid.Offsets[i]
	}
	return a.place(ctx, a.align, search, work/2)
}

// steady returns the problem of one cycle of a segment, as if it went on for ever: what
// lives over its end lives over its beginning as well. Of is the group of each buffer.
func (p *player) steady(segment int, group []int32, align func(int64) int64) (problem *placement.Problem, of []int32) {
	span := p.spans[segment]
	from, to := int32(-1), int32(len(p.log))
	for _, v := range p.visits {
		if int(v.at.segment) != segment || v.at.index != 0 {
			if from >= 0 && int(v.at.segment) != segment {
				to = min(to, v.since)
			}
			continue
		}
		if int(v.at.repeat) == span.lead {
			from = v.since
		}
		if int(v.at.repeat) >= span.lead+span.cycle {
			to = min(to, v.since)
		}
	}
	lives := map[int32][][2]int64{} // by group, in order
	var groups []int32
	size := map[int32]int64{}
	for i := range p.items {
		it := &p.items[i]
		if it.death <= from || it.birth >= to {
			continue
		}
		g := group[i]
		if lives[g] == nil {
			groups = append(groups, g)
			size[g] = it.bytes
		}
		lives[g] = append(lives[g], [2]int64{int64(max(it.birth, from)), int64(min(it.death, to))})
	}
	problem = &placement.Problem{}
	for _, g := range groups {
		l := lives[g]
		b := placement.Buffer{Lower: l[0][0], Upper: l[len(l)-1][1], Size: size[g], Align: align(size[g])}
		for k := 1; k < len(l); k++ {
			if l[k-1][1] < l[k][0] {
				b.Gaps = append(b.Gaps, placement.Gap{Lower: l[k-1][1], Upper: l[k][0]})
			}
		}
		problem.Buffers = append(problem.Buffers, b)
		of = append(of, g)
	}
	return problem, of
}
