package layout

import (
	"context"
	"fmt"
	"iter"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
)

// room packs what dies in the action in which it is born. It returns how many bytes that
// takes, and where each buffer lies: -1 for those that live longer.
func (s *steady) room(ctx context.Context, p *player) (height int64, at []int64, err error) {
	at = make([]int64, len(s.Buffers))
	packed := map[string][]int64{}
	first := 0 // buffer of the action
	for _, action := range p.actions(s.segment) {
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

// stint is a time, in changes.
type stint struct{ begin, end int64 }

// actions iterates over the kinds and the times of the actions of the first repeat of a segment that is
// like those behind it.
func (p *player) actions(segment int) iter.Seq2[schedule.Kind, stint] {
	return func(yield func(schedule.Kind, stint) bool) {
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
			if !yield(p.program[segment].Body[v.at.index].Kind(), stint{last, end}) {
				return
			}
			last = end
		}
	}
}
