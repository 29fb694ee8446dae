package schedule

// quantizing proves, rank by rank, that the copies of a stage's weights are made once,
// before anything reads them, and where the plan has drops, that each of the two, for
// the forward and for the backward, is dropped once, by the last action that reads it.
func (c *checker) quantizing() {
	if !c.quantizes {
		return
	}
	for rank, program := range c.plan.Programs {
		v := &quantized{c: c, rank: rank, walk: newWalk(setsOfWeights * len(c.on[rank])), last: make([][len(weights)]spot, len(c.on[rank]))}
		v.program(program, false, v)
		if !c.unproved(&v.walk, rank) {
			v.left()
			c.looked(&v.walk)
		}
	}
}

// quantized is the visitor that follows the copies of weights on a rank. Its sets hold
// microbatch 0 where something is so of a stage.
type quantized struct {
	walk
	c    *checker
	rank int
	last [][len(weights)]spot // by the rank's stage: what has read each of its copies last
}

// The sets of each of the rank's stages.
const (
	weightsMade     = iota
	weightsForward  // there, and not dropped yet
	weightsBackward // the same
	setsOfWeights   = iota
)

// weights are the two copies: what drops them, and where they are.
var weights = [...]struct {
	bit  Drop
	set  int
	what string
}{
	{DropForwardWeights, weightsForward, "forward"},
	{DropBackwardWeights, weightsBackward, "backward"},
}

func (v *quantized) repeats(int64) {}

func (v *quantized) visit(a Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if !c.allows(stage, kind) || c.includes(stage, Quantize) && !c.allows(stage, Quantize) {
		return
	}
	sets := setsOfWeights * c.place[stage]
	if kind == Quantize {
		if !v.add(sets+weightsMade, 0) {
			v.fault(a, mb, Twice, "", "makes copies of weights that this step has made already; take one of the two out.")
			return
		}
		for _, w := range weights {
			if c.copiesWeights(stage)&w.bit != 0 {
				v.add(sets+w.set, 0)
			}
		}
		return
	}
	reads := c.readsWeights(stage, kind)
	if (reads|a.Drop())&weightBits == 0 {
		return
	}
	if reads != 0 && !v.has(sets+weightsMade, 0) {
		v.fault(a, mb, Order, "weights", "runs before %v, which makes the copies of weights that it reads; move %[1]v before it.", Act(Quantize, stage, 0))
		return
	}
	for i, w := range weights {
		if reads&w.bit != 0 && !v.trial {
			v.last[c.place[stage]][i] = spot{v.rank, v.segment, v.index, v.position, a, mb}
		}
		dropped := a.Drop()&w.bit != 0
		switch {
		case reads&w.bit == 0 && dropped:
			v.fault(a, mb, MisplacedDrop, w.what, "drops the copies of weights for the %s, which it does not read; take drop %v away.", w.what, w.bit)
		case reads&w.bit != 0 && !v.has(sets+w.set, 0):
			v.fault(a, mb, UseAfterDrop, w.what, "reads the copies of weights for the %s, which were dropped before; let the last action that reads them drop them.", w.what)
		case dropped:
			v.remove(sets+w.set, 0)
		}
	}
}

func (v *quantized) fault(a Action, mb int64, code Code, about, format string, args ...any) {
	v.c.at(&v.walk, v.rank, a, mb, code, about, format, args...)
}

// left adds faults for copies that are there at the end of a plan with drops, at the
// actions that read them last.
func (v *quantized) left() {
	for i, stage := range v.c.on[v.rank] {
		for k, w := range weights {
			if !v.c.marked || len(v.sets[setsOfWeights*i+w.set]) == 0 {
				continue
			}
			if last := v.last[i][k]; last.action.Kind() != None {
				v.c.fault(last, MissingDrop, w.what, "is the last to read the copies of its stage's weights for the %s and must drop them; give it drop %v.", w.what, w.bit)
			} else {
				v.c.plain(MissingDrop, v.rank, "Rank %d makes copies of stage %d's weights for the %s, and nothing reads and drops them.", v.rank, stage, w.what)
			}
		}
	}
}
