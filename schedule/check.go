package schedule

// Check proves a plan without knowing what made it, where a link between two ranks
// holds any number of messages. It is CheckLinks(plan, Unlimited).
func Check(plan *Plan) error { return CheckLinks(plan, Unlimited) }

// CheckLinks proves a plan without knowing what made it, for links that hold so many
// messages: Unlimited, or 0 for rendezvous, where a send and its receive complete
// together. It demands that
//
//   - the actions are exactly those that mode, frozen stages and facts require,
//     each once and on the rank of its stage;
//   - everything an action needs comes before it on its rank, and neither of a joined
//     pair needs the other;
//   - a stage's weights are there where it computes, if the plan gathers them, and its
//     gradients are reduced when they are complete, if the plan reduces any;
//   - the copies of weights on which a stage computes are made once, before their use;
//   - what one rank sends to another is received in the same order, and no rank waits
//     for ever;
//   - where the plan has drops: nothing is used after its drop, everything is
//     dropped once, a microbatch retires once on a rank and last, and no more is in
//     flight than Windows, Outgoing and Entries say.
//
// A nil error is a proof for every repeat of every segment. Its cost depends on the
// size of the plan as segments, not on the number of microbatches, wherever
// microbatches are taken in order; where a plan has no such form, every action is
// visited.
//
// The error is a *PlanError, which lists every fault up to a limit and is
// ErrInvalidPlan; with ranks that block each other it is ErrDeadlock as well. What
// would only repeat a fault already found is not looked for.
func CheckLinks(plan *Plan, capacity int) error {
	_, err := Prove(plan, capacity)
	return err
}

// Proof says what a plan was proved by.
type Proof struct {
	Actions int64 // of all ranks, each repeat counted
	// Visited is how many of them were looked at one by one. All others are repeats of
	// these, and proved at once.
	Visited int64
}

// Prove is CheckLinks, and says how much of the plan the proof had to look at. The
// proof means nothing where there is an error.
func Prove(plan *Plan, capacity int) (Proof, error) {
	c := &checker{name: plan.Name}
	c.prove(plan, capacity)
	if c.plan == nil {
		return Proof{}, c.err()
	}
	return Proof{Actions: c.actions(), Visited: c.visited}, c.err()
}

// prove finds what is wrong with a plan.
func (c *checker) prove(plan *Plan, capacity int) {
	c.checkShape(plan)
	if capacity < Unlimited {
		c.plain(Malformed, -1, "A link cannot hold %d messages; give it 0 or more, or %d for any number.", capacity, Unlimited)
	}
	c.programs(plan)
	if c.plan == nil || c.lost {
		return
	}
	c.progress(capacity)
	if c.marked {
		c.drops(len(c.faults) == 0)
	}
}

// programs finds what is wrong with a plan that fits together, but for ranks that wait
// for ever and for drops.
func (c *checker) programs(plan *Plan) {
	if len(c.faults) > 0 {
		return
	}
	c.outline = newOutline(plan)
	c.permit()
	c.census()
	c.counted = len(c.faults) == 0
	if c.lost {
		return
	}
	c.order()
	c.sharding()
	c.quantizing()
	c.pairing()
}
