package costs

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// level is what is live before an action.
type level struct {
	action  schedule.Action
	classes memory.ByClass
}

// sizes fills in what the stages save, free and carry, of which Output and Gradient
// are known. It follows from what was live before each action of one microbatch whose
// backward is split, and after the last one.
//
// A stage that keeps a result of another one, such as its input, has saved it from then on:
// F and I release what they are given, and save as much. Of the copies of its
// weights in FP8 one half is for the forward and one, of the same size, for the backward.
func sizes(stages []simulate.StageCosts, levels []level) {
	for i, before := range levels[:len(levels)-1] {
		s := before.action.Stage()
		costs, change := &stages[s], levels[i+1].classes
		for class := range change {
			change[class] -= before.classes[class]
		}
		change[memory.Entry] = 0 // not of a stage
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
