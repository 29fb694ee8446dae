package schedule

// sharding proves, rank by rank, that the weights of a stage are there when it
// computes and that its gradients are reduced when they are complete.
//
// A plan that gathers the weights of a stage (UNSHARD) or gives them up (RESHARD) has
// the stage compute only between the two, in as many stretches as it likes, and ends
// with all given up. A plan that reduces the gradients of a stage (REDUCE_GRAD) may do
// so in parts: each reduction takes what was added since the one before, which must be
// something, and the last one comes behind the last B or W.
func (c *checker) sharding() {
	for rank, program := range c.plan.Programs {
		v := &sharding{c: c, rank: rank, walk: newWalk(2 * len(c.on[rank])), first: make([]spot, len(c.on[rank]))}
		if !v.needed() {
			continue
		}
		v.program(program, false, v)
		if !c.unproved(&v.walk, rank) {
			v.left()
			c.looked(&v.walk)
		}
	}
}

// sharding is the visitor that follows weights and gradients on a rank. Its sets hold
// microbatch 0 where something is so of a stage: the first ones, by the rank's stages,
// that the weights are gathered, the others that gradients are not reduced yet.
type sharding struct {
	walk
	c     *checker
	rank  int
	first []spot // by the rank's stages: the first to add to a gradient since it was reduced
}

// needed reports whether there is anything to follow on the rank.
func (v *sharding) needed() bool {
	for _, stage := range v.c.on[v.rank] {
		if v.shards(stage) || v.c.includes(stage, ReduceGrad) {
			return true
		}
	}
	return false
}

// shards reports whether the plan says when the weights of the stage are there.
func (v *sharding) shards(stage int) bool {
	return v.c.includes(stage, Unshard) || v.c.includes(stage, Reshard)
}

func (v *sharding) repeats(int64) {}

func (v *sharding) visit(a Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	gathered, unreduced := c.place[stage], c.place[stage]+len(c.on[v.rank])
	switch kind {
	case Unshard:
		if !v.add(gathered, 0) {
			v.fault(a, mb, Sharding, "gathers weights that are there already; take it out, or put a RESHARD before it.")
		}
	case Reshard:
		if !v.remove(gathered, 0) {
			v.fault(a, mb, Sharding, "gives up weights that are not there; take it out, or put an UNSHARD before it.")
		}
	case ReduceGrad:
		if c.allows(stage, kind) && !v.remove(unreduced, 0) {
			v.fault(a, mb, Reduction, "reduces gradients to which nothing was added since the reduction before; take it out.")
		}
	case F, B, I, W, Quantize:
		if v.shards(stage) && !v.has(gathered, 0) {
			v.fault(a, mb, Sharding, "computes with weights that are not there; put an UNSHARD of stage %d before it, and its RESHARD behind it.", stage)
		}
	}
	if (kind == B || kind == W) && c.allows(stage, kind) && v.add(unreduced, 0) && !v.trial {
		v.first[c.place[stage]] = spot{v.rank, v.segment, v.index, v.position, a, mb}
	}
}

func (v *sharding) fault(a Action, mb int64, code Code, format string, args ...any) {
	v.c.at(&v.walk, v.rank, a, mb, code, "", format, args...)
}

// left adds faults for what is not given up and not reduced at the end.
func (v *sharding) left() {
	for i, stage := range v.c.on[v.rank] {
		if len(v.sets[i]) > 0 {
			v.c.plain(Sharding, v.rank, "Rank %d never gives up the weights of stage %d that it has gathered last; add %v.", v.rank, stage, Act(Reshard, stage, 0))
		}
		if v.c.includes(stage, ReduceGrad) && len(v.sets[i+len(v.c.on[v.rank])]) > 0 {
			v.c.fault(v.first[i], Reduction, "", "adds to gradients behind their last reduction; move %v behind the last B or W of the stage.", Act(ReduceGrad, stage, 0))
		}
	}
}
