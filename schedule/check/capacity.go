package check

// LeastCapacity returns how many messages a link between two ranks must hold so that no rank of a
// proved plan waits for ever: 0 if rendezvous is enough, or if the plan sends nothing or is not
// valid. Any larger capacity works as well. It returns an error if the plan is too irregular to
// find out.
func (p *Proof) LeastCapacity() (int, error) {
	c := p.checker
	if c == nil || !c.Transfers || c.rendezvous || len(c.Faults) > 0 {
		return 0, nil
	}
	blocked, enough := 0, 1 // the first is the largest capacity that is known to be too small
	for !c.flows(enough) {
		blocked, enough = enough, 2*enough
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

// flows reports whether every rank comes to its end if links hold this many messages. If that
// cannot be found out, which is a fault, it reports true.
func (c *Checker) flows(capacity int) bool {
	v := c.run(capacity)
	if v.Exhausted {
		c.undecided()
		return true
	}
	return v.Done()
}
