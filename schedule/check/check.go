package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Plan proves a plan, whatever rule made it, for links between ranks that hold any number of
// messages. It is Links(plan, Unlimited).
func Plan(plan *schedule.Plan) error { return Links(plan, schedule.Unlimited) }

// Links proves a plan, whatever rule made it, for links that hold this many messages: Unlimited, or
// 0 for rendezvous, in which a send and its receive complete together. It demands that
//
//   - the actions are exactly those that mode, frozen stages and facts require,
//     each once and on the rank of its stage;
//   - everything an action needs comes before it on its rank, and neither of a joined
//     pair needs the other;
//   - a stage's weights are there where it computes, if the plan gathers them, and its
//     gradients are reduced when they are complete, if the plan reduces any;
//   - the copies of weights on which a stage computes are made once, before their use;
//   - saved state that goes to far memory is back before it is taken, both ends of a copy are there
//     until it is complete, and copies in one direction are waited for in the order in which they
//     start;
//   - messages from one rank to another are received in the order in which they are sent, and no
//     rank waits for ever;
//   - if the plan has drops: nothing is used after its drop, everything is dropped once, a
//     microbatch retires once on a rank and last, and no more is in flight than Windows, Outgoing
//     and Entries say.
//
// A nil error is a proof for every repeat of every segment. Its cost depends on the
// size of the plan as segments, not on the number of microbatches, if these are taken in order.
// If a plan has no such form every action is visited.
//
// The error is a *Error, which lists every fault up to a limit and is ErrInvalidPlan; if ranks block
// each other it is ErrDeadlock as well. It does not list faults that follow from others.
func Links(plan *schedule.Plan, capacity int) error {
	_, err := Prove(plan, capacity)
	return err
}

// Proof is the extent of a proof.
type Proof struct {
	Actions int64 // of all ranks, each repeat counted
	// Visited is how many of them were visited one by one. All others are repeats of these, and
	// proved at once.
	Visited int64

	checker *Checker // for LeastCapacity; nil if the parts of the plan do not fit together
}

// Prove is Links, and returns how much of the plan the proof had to visit. The proof means nothing
// if there is an error.
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

// Finish continues after Programs: it finds deadlocks and faults of drops. The error has all faults
// that were found.
func (c *Checker) Finish(capacity int) error {
	if c.Plan != nil && !c.lost {
		c.progress(capacity)
		if c.Marked {
			c.drops(len(c.Faults) == 0)
		}
	}
	return c.Err()
}

// Programs finds all faults of a plan whose parts fit together, except deadlocks and faults of
// drops.
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
	c.offloading()
	c.pairing()
}
