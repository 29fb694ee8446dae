package check

// LeastCapacity returns the smallest capacity, in messages, that links between ranks need for a
// proved plan to run without deadlock. It returns 0 if rendezvous is enough, if the plan sends
// nothing, or if the plan is invalid. Any larger capacity works as well. It returns an error if the
// plan is too irregular to decide.
func (p *Proof) LeastCapacity() (int, error) {
	c := p.checker
	if c == nil || !c.Transfers || c.rendezvous || len(c.Faults) > 0 {
		return 0, nil
	}
	blocked, enough := 0, 1 // blocked is the largest capacity known to be too small, enough the smallest known to suffice
	for !c.finishes(enough) {
		blocked, enough = enough, 2*enough
	}
	for enough-blocked > 1 && len(c.Faults) == 0 {
		if middle := (blocked + enough) / 2; c.finishes(middle) {
			enough = middle
		} else {
			blocked = middle
		}
	}
	return enough, c.Err()
}

// finishes reports whether every rank finishes its program if each link holds capacity messages. If
// the plan is too irregular to decide, finishes adds a fault and returns true.
func (c *Checker) finishes(capacity int) bool {
	v := c.run(capacity)
	if v.sets.Exhausted {
		c.undecided()
		return true
	}
	return v.machine.Done()
}
