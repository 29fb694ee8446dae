package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// checkQuantization proves, rank by rank, that the copies of a stage's weights are made once, before
// any action reads them. If the plan has drops, it also proves that the copies for the forward and
// the copies for the backward are each dropped once, by the last action that reads them.
func (c *Checker) checkQuantization() {
	if !c.Quantizes {
		return
	}
	for rank, stages := range c.On {
		v := &quantizeVisitor{c.walk(setsOfWeights * len(stages)), make([][len(weights)]location, len(stages))}
		if v.run(rank, v.visit) {
			v.checkEnd()
		}
	}
}

// quantizeVisitor is the visitor that tracks the copies of weights on a rank. Its sets are flags.
type quantizeVisitor struct {
	rankWalk
	last [][len(weights)]location // by the rank's stages: the last action that read the copies for each pass
}

// The sets for each stage of the rank.
const (
	weightsMade     = iota
	weightsForward  // the copies for the forward exist
	weightsBackward // the copies for the backward exist
	setsOfWeights   = iota
)

// weights lists the drop bit, the set and the name of the copies for each pass.
var weights = [...]struct {
	bit  schedule.Drop
	set  int
	what string
}{
	{schedule.DropForwardWeights, weightsForward, "forward"},
	{schedule.DropBackwardWeights, weightsBackward, "backward"},
}

func (v *quantizeVisitor) visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if !c.allows(stage, kind) || c.Includes(stage, schedule.Quantize) && !c.allows(stage, schedule.Quantize) {
		return
	}
	first := setsOfWeights * c.Place[stage]
	if kind == schedule.Quantize {
		if !v.sets.Raise(first + weightsMade) {
			v.fault(a, mb, Twice, "", "makes copies of weights that this step has already made; remove one of the two.")
			return
		}
		for _, w := range weights {
			if w.set == weightsForward || c.HasBackward(stage) {
				v.sets.Raise(first + w.set)
			}
		}
		return
	}
	reads := c.readsWeights(stage, kind)
	if (reads|a.Drop())&passes.WeightBits == 0 {
		return
	}
	if reads != 0 && !v.sets.Raised(first+weightsMade) {
		v.fault(a, mb, Order, "weights", "runs before %v, which makes the copies of weights that it reads; move %[1]v before it.", schedule.NewAction(schedule.Quantize, stage, 0))
		return
	}
	for i, w := range weights {
		if reads&w.bit != 0 {
			v.last[c.Place[stage]][i] = v.here(a, mb)
		}
		dropped := a.Drop()&w.bit != 0
		switch {
		case reads&w.bit == 0 && dropped:
			v.fault(a, mb, MisplacedDrop, w.what, "drops the copies of weights for the %s, which it does not read; remove drop %v.", w.what, w.bit)
		case reads&w.bit != 0 && !v.sets.Raised(first+w.set):
			v.fault(a, mb, UseAfterDrop, w.what, "reads the copies of weights for the %s, which were dropped before; let the last action that reads them drop them.", w.what)
		case dropped:
			v.sets.Lower(first + w.set)
		}
	}
}

// checkEnd adds faults for copies that a plan with drops never drops, at the last actions that read
// them.
func (v *quantizeVisitor) checkEnd() {
	for i, stage := range v.c.On[v.rank] {
		for k, w := range weights {
			if !v.c.Marked || len(v.sets.Get(setsOfWeights*i+w.set)) == 0 {
				continue
			}
			if last := v.last[i][k]; last.action.Kind() != schedule.None {
				v.c.fault(last, MissingDrop, w.what, "is the last to read the copies of its stage's weights for the %s and must drop them; give it drop %v.", w.what, w.bit)
			} else {
				v.c.planFault(MissingDrop, v.rank, "Rank %d makes copies of stage %d's weights for the %s, but no action reads and drops them.", v.rank, stage, w.what)
			}
		}
	}
}

// readsWeights returns the drop bits of the copies of weights that an action of the kind reads. W
// reads none, because the weight gradient does not depend on the weights.
func (c *Checker) readsWeights(stage int, kind schedule.Kind) schedule.Drop {
	switch {
	case !c.Includes(stage, schedule.Quantize):
		return 0
	case kind == schedule.F:
		return schedule.DropForwardWeights
	case kind != schedule.B && kind != schedule.I:
		return 0
	case c.Plan.StageInfo != nil && c.Plan.StageInfo[stage].Recomputes:
		return passes.WeightBits
	}
	return schedule.DropBackwardWeights
}
