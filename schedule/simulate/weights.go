package simulate

import (
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// weightCopies describes the copies of a stage's weights for the forward and for the backward: their
// bytes, and the last actions on the rank that read them.
type weightCopies struct {
	bytes [2]int64
	last  [2]schedule.Action // 0 if no action reads them
}

// prepareCopies sets the copies of weights of all stages, and the cost of the QUANTIZE that makes them.
func (s *simulation) prepareCopies() {
	if !s.outline.Quantizes {
		return
	}
	s.copies = make([]weightCopies, s.outline.Stages)
	for stage := range s.copies {
		costs, c := s.costs.Of(stage), &s.copies[stage]
		c.bytes[0] = costs.ForwardWeights
		if s.outline.HasBackward(stage) {
			c.bytes[1] = costs.BackwardWeights
		}
		i := tableIndex(stage, schedule.Quantize)
		s.holdings[i].allocate(memory.FP8, c.bytes[0]+c.bytes[1])
		if costs.Quantize > 0 {
			s.actionCosts[i].op, s.actionCosts[i].time = opCompute, costs.Quantize
		}
	}
	for _, program := range s.plan.Programs {
		for _, segment := range slices.Backward(program) {
			for _, a := range slices.Backward(segment.Body) {
				stage := a.Stage()
				if !s.outline.Includes(stage, schedule.Quantize) {
					continue
				}
				c := s.costs.Of(stage)
				recomputes := c.Recompute > 0 || c.PerToken.Recompute > 0 || c.PerSquare.Recompute > 0
				if s.plan.StageInfo != nil {
					recomputes = s.plan.StageInfo[stage].Recomputes
				}
				for reads := effects.WeightReads(a.Kind(), recomputes); reads != 0; reads &= reads - 1 {
					if last := &s.copies[stage].last[reads.First()-effects.ForwardWeights]; *last == 0 {
						*last = a.Shift((segment.Repeat - 1) * segment.Stride).WithDrop(0).WithJoin(false)
					}
				}
			}
		}
	}
}

// endWeights frees the copies whose last reader is the action.
func (l *level) endWeights(a schedule.Action) {
	if l.copies == nil {
		return
	}
	c, a := &l.copies[a.Stage()], a.WithDrop(0).WithJoin(false)
	for i, bytes := range c.bytes {
		if a == c.last[i] {
			l.classes[memory.FP8] -= bytes
			l.bytes -= bytes
		}
	}
}
