package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Plan proves a plan for links that hold any number of messages. It is equivalent to
// Links(plan, schedule.Unlimited).
func Plan(plan *schedule.Plan) error { return Links(plan, schedule.Unlimited) }

// Links proves a plan for links that hold capacity messages each. The capacity may be
// schedule.Unlimited, or 0 for rendezvous, in which a send and its receive complete together. Links
// requires that
//
//   - the plan has exactly the actions that its mode, frozen stages and facts require, each once
//     and on the rank of its stage;
//   - every action comes after its dependencies on its rank, and the two actions of a joined pair
//     do not depend on each other;
//   - if the plan gathers a stage's weights, they are gathered whenever the stage computes, and if
//     the plan reduces gradients, it reduces them when they are complete;
//   - the copies of weights with which a stage computes are made once, before their first use;
//   - saved state that moves to far memory is back before an action takes it, both buffers of a
//     copy exist until the copy is complete, and a rank waits for copies in one direction in the
//     order in which they start;
//   - messages from one rank to another are received in the order in which they are sent, and the
//     ranks do not deadlock;
//   - if the plan has drops, nothing is used after its drop, everything is dropped once, a
//     microbatch retires once on each rank, with its last action there, and the numbers in flight
//     do not exceed those that StageWindows, SendWindows and EntryWindows declare.
//
// In a plan for PyTorch, ranks wait in the computations that take messages and at waits for sends. With a
// limited capacity, Links requires that the plan also runs if they wait at sends and receives.
//
// A nil error is a proof for every repeat of every segment. If the segments take the microbatches
// in order, the cost depends on the size of the segments, not on the number of microbatches.
// Otherwise Links visits every action, or returns a fault (Unproved) if the plan is too large for that.
//
// The error is a *Error that lists faults up to a limit per code and matches ErrInvalidPlan. If
// ranks block each other, it also matches waitgraph.ErrDeadlock. It does not list faults that follow from
// others.
func Links(plan *schedule.Plan, capacity int) error {
	_, err := Prove(plan, capacity)
	return err
}

// Proof describes the cost of a proof.
type Proof struct {
	Actions int64 // the number of actions on all ranks, counting every repeat
	// Visited is the largest number of actions that a traversal of the proof visited one by one. It
	// skipped all other actions as repeats of these.
	Visited int64

	checker *Checker // for the capacities of links; nil if the parts of the plan do not fit together
}

// Prove is like Links, but also returns a Proof, which is meaningless if the error is not nil.
func Prove(plan *schedule.Plan, capacity int) (Proof, error) {
	return prove(plan, int64(capacity), Sizes{})
}

// prove proves a plan for links that hold messages whose sizes sum up to at most the capacity.
func prove(plan *schedule.Plan, capacity int64, sizes Sizes) (Proof, error) {
	c := &Checker{Name: plan.Name}
	c.CheckShape(plan)
	if capacity < schedule.Unlimited {
		unit := "messages"
		if sizes.Of != nil {
			unit = "bytes"
		}
		c.planFault(Malformed, -1, "A link cannot hold %d %s; use 0 or more, or %d for no limit.", capacity, unit, schedule.Unlimited)
	}
	c.Programs(plan)
	c.measure(sizes)
	err := c.Finish(capacity)
	if c.Plan == nil {
		return Proof{}, err
	}
	return Proof{c.actions(), c.visited, c}, err
}

// Finish completes the checks after Programs by finding deadlocks and faulty drops. It returns the result of
// Err, with all faults found so far.
func (c *Checker) Finish(capacity int64) error {
	if c.Plan != nil && !c.aborted {
		c.checkProgress(capacity)
		if c.Marked {
			c.checkDrops(len(c.Faults) == 0)
		}
	}
	return c.Err()
}

// Programs finds all faults in a well-formed plan except deadlocks and faulty drops. It does nothing
// if faults have already been found.
func (c *Checker) Programs(plan *schedule.Plan) {
	if len(c.Faults) > 0 {
		return
	}
	c.Outline = passes.NewOutline(plan)
	c.findAllowed()
	c.countActions()
	c.counted = len(c.Faults) == 0
	if c.aborted {
		return
	}
	c.checkOrder()
	c.checkSharding()
	c.checkQuantization()
	c.checkOffloads()
	c.checkPairing()
}
