package costs

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// level is the live memory before an action.
type level struct {
	action  schedule.Action
	classes memory.ByClass
}

// sizes computes the bytes that the stages save, free and carry, and those of their FP8 copies,
// from the live bytes before each action of one microbatch with a split backward, and after the
// last action. Output and Gradient must already be set.
//
// If a stage keeps a result of another stage, such as its input, the bytes count as saved by this stage
// from then on: F or I releases its argument and saves the same number of bytes. Half of the bytes of the
// FP8 copies of a stage's weights are for the forward, and half for the backward.
func sizes(stages []simulate.StageCosts, levels []level) {
	for i, before := range levels[:len(levels)-1] {
		s := before.action.Stage()
		costs, change := &stages[s], levels[i+1].classes
		for class := range change {
			change[class] -= before.classes[class]
		}
		change[memory.Entry] = 0 // does not belong to a stage
		if before.action.Drop()&schedule.DropForwardWeights != 0 {
			change[memory.FP8] += costs.ForwardWeights
		}
		if before.action.Drop()&schedule.DropBackwardWeights != 0 {
			change[memory.FP8] += costs.BackwardWeights
		}
		switch before.action.Kind() {
		case schedule.Quantize:
			costs.ForwardWeights, costs.BackwardWeights = change[memory.FP8]/2, change[memory.FP8]/2
		case schedule.F:
			costs.Saved = change.Total() - costs.Output
			if s > 0 {
				costs.Saved += stages[s-1].Output
			}
		case schedule.I:
			costs.FreedByI = max(-change[memory.Saved]-change[memory.Activation]-min(change[memory.FP8], 0), 0)
			costs.Carry = change.Total() - costs.Gradient + costs.FreedByI
			if s+1 < len(stages) {
				costs.Carry += stages[s+1].Gradient
			}
		}
	}
}
