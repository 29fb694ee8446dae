package check

import "github.com/weir-ml/weir/schedule"

// LeastCapacity returns how many messages a link between two ranks must hold so that
// no rank of the plan waits for ever: 0 where rendezvous will do, or where the plan
// sends nothing. Any larger capacity works as well. The error is that of Check.
func LeastCapacity(plan *schedule.Plan) (int, error) {
	c := &Checker{Name: plan.Name}
	if c.prove(plan, schedule.Unlimited); len(c.Faults) > 0 || !c.Transfers {
		return 0, c.Err()
	}
	enough := 0
	blocked := -1 // the largest capacity that is known to be too small
	for !c.flows(enough) {
		blocked, enough = enough, max(1, 2*enough)
	}
	for enough-blocked > 1 && len(c.Faults) == 0 {
		if middle := (blocked + enough) / 2; c.flows(middle) {
			enough = middle
		} else {
			blocked = middle
		}
	}
	return enough, c.Err()
}

// flows reports whether every rank comes to its end where a link holds so many
// messages. Where that cannot be found out, which is a fault, it reports true.
func (c *Checker) flows(capacity int) bool {
	v := c.march(capacity)
	if v.Exhausted {
		c.untold()
		return true
	}
	for _, p := range v.Ranks {
		if p.Segment < len(p.Program) {
			return false
		}
	}
	return true
}
