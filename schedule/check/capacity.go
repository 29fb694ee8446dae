package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// RunsUnderRendezvous reports whether the plan runs without deadlock if every send waits for its receive, and therefore
// also in every version of PyTorch. It is true for a plan without transfers. It says nothing about other faults of the
// plan, which Prove reports.
func (p *Proof) RunsUnderRendezvous() bool {
	return p.checker != nil && (p.checker.rendezvous || !p.checker.Transfers)
}

// LeastCapacity returns the smallest capacity that links between ranks need for a proved plan to run
// without deadlock: in messages, or in bytes after ProveBytes. It returns 0 if rendezvous is enough,
// if the plan sends nothing, or if the plan is invalid, and schedule.Unlimited if no capacity is enough, that is, if
// the ranks deadlock unless they post their receives and continue, as in PyTorch. Any larger capacity works as well. It
// returns an error if the plan is too irregular to decide.
func (p *Proof) LeastCapacity() (int64, error) {
	c := p.checker
	if c == nil || !c.Transfers || c.rendezvous || len(c.Faults) > 0 {
		return 0, nil
	}
	if c.mustPost() {
		return schedule.Unlimited, nil
	}
	return c.least(nil), c.Err()
}

// mustPost reports whether ranks that wait at their receives deadlock on links of any capacity.
func (c *Checker) mustPost() bool {
	return c.Plan.Runtime.Posts() && !c.finishes(schedule.Unlimited, nil)
}

// least returns the smallest positive capacity with which every rank finishes its program if each link has this
// capacity, or its own if that is larger.
func (c *Checker) least(own []int64) int64 {
	unit := c.unit()
	blocked, enough := int64(0), int64(1) // in units: the largest capacity known to be too small, the smallest known to suffice
	for !c.finishes(enough*unit, own) {
		blocked, enough = enough, 2*enough
	}
	for enough-blocked > 1 && len(c.Faults) == 0 {
		if middle := (blocked + enough) / 2; c.finishes(middle*unit, own) {
			enough = middle
		} else {
			blocked = middle
		}
	}
	return enough * unit
}

// finishes reports whether every rank finishes its program if each link has the capacity, or its own if
// that is larger. If the plan is too irregular to decide, finishes adds a fault and returns true.
func (c *Checker) finishes(capacity int64, own []int64) bool {
	v := c.run(capacity, own)
	if v.sets.Exhausted {
		c.undecided()
		return true
	}
	return v.machine.Done()
}

// LinkCapacity is the capacity that a link from one rank to another needs.
type LinkCapacity struct {
	From      int   `json:"from"`
	To        int   `json:"to"`
	Outputs   bool  `json:"outputs"`   // the link carries outputs of stages
	Gradients bool  `json:"gradients"` // the link carries gradients
	Capacity  int64 `json:"capacity"`  // in the unit of LeastCapacity
}

// LinkCapacities divides LeastCapacity among the links. The capacities of all links are lowered together from this
// value until the ranks deadlock. The links at which the ranks of the waiting cycles wait to send keep the last
// capacity that was enough, and the others are lowered further, down to 0. So the plan runs without deadlock if each
// link has its capacity. The result is nil if the plan sends nothing or is invalid, or if no capacity is enough. The
// error is the error of LeastCapacity.
func (p *Proof) LinkCapacities() ([]LinkCapacity, error) {
	c := p.checker
	if c == nil || !c.Transfers || len(c.Faults) > 0 || !c.rendezvous && c.mustPost() {
		return nil, nil
	}
	unit, level := c.unit(), int64(0)
	links := passes.NewLinks(&c.Outline)
	own := make([]int64, len(links.From))
	if !c.rendezvous {
		level = c.least(nil)
	}
	for level > 0 && len(c.Faults) == 0 {
		v := c.run(level-unit, own)
		switch {
		case v.sets.Exhausted:
			c.undecided()
		case v.machine.Done():
			if level = 0; !c.finishes(0, own) {
				level = c.least(own)
			}
		default: // A cycle that waits at none of the other links would also have formed at this level.
			still := Standstill{&c.Outline, v.links, v.machine.Ranks}
			for _, f := range still.Faults() {
				for _, w := range f.Cycle {
					if kind := w.Action.Kind(); kind == schedule.SendF || kind == schedule.SendB {
						link := &own[links.Of[passes.Edge(w.Action)]]
						*link = max(*link, level)
					}
				}
			}
		}
	}
	list := make([]LinkCapacity, len(own))
	for link := range list {
		list[link] = LinkCapacity{From: links.From[link], To: links.To[link], Capacity: own[link]}
	}
	for e, link := range links.Of {
		if link >= 0 {
			list[link].Outputs = list[link].Outputs || e%2 == 0
			list[link].Gradients = list[link].Gradients || e%2 == 1
		}
	}
	return list, c.Err()
}
