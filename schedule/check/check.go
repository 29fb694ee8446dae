package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Plan proves a plan without knowing what made it, where a link between two ranks
// holds any number of messages. It is Links(plan, Unlimited).
func Plan(plan *schedule.Plan) error { return Links(plan, schedule.Unlimited) }

// Links proves a plan without knowing what made it, for links that hold so many
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
// The error is a *Error, which lists every fault up to a limit and is
// ErrInvalidPlan; with ranks that block each other it is ErrDeadlock as well. What
// would only repeat a fault already found is not looked for.
func Links(plan *schedule.Plan, capacity int) error {
	_, err := Prove(plan, capacity)
	return err
}

// Proof says what a plan was proved by.
type Proof struct {
	Actions int64 // of all ranks, each repeat counted
	// Visited is how many of them were looked at one by one. All others are repeats of
	// these, and proved at once.
	Visited int64

	checker *Checker // for what is asked later; nil where the plan does not fit together
}

// Prove is Links, and says how much of the plan the proof had to look at. The
// proof means nothing where there is an error.
func Prove(plan *schedule.Plan, capacity int) (Proof, error) {
	c := &Checker{Name: plan.Name}
	c.CheckShape(plan)
	if capacity < schedule.Unlimited {
		c.plain(Malformed, -1, "A link cannot hold %d messages; give it 0 or more, or %d for any number.", capacity, schedule.Unlimited)
	}
	c.Programs(plan)
	err := c.Finish(capacity)
	if c.Plan == nil {
		return Proof{}, err
	}
	return Proof{c.actions(), c.visited, c}, err
}

// Finish goes on from Programs: it finds ranks that wait for ever, and faults of drops. The
// error has all faults that were found.
func (c *Checker) Finish(capacity int) error {
	if c.Plan != nil && !c.lost {
		c.progress(capacity)
		if c.Marked {
			c.drops(len(c.Faults) == 0)
		}
	}
	return c.Err()
}

// Programs finds what is wrong with a plan that fits together, but for ranks that wait
// for ever and for drops.
func (c *Checker) Programs(plan *schedule.Plan) {
	if len(c.Faults) > 0 {
		return
	}
	c.Outline = passes.NewOutline(plan)
	c.permit()
	c.census()
	c.counted = len(c.Faults) == 0
	if c.lost {
		return
	}
	c.checkOrder()
	c.sharding()
	c.quantizing()
	c.pairing()
}
