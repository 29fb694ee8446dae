package sim

import "slices"

// smaller returns scenarios each of which is smaller than s in one respect.
func smaller(s Scenario) []Scenario {
	var all []Scenario
	with := func(change func(*Scenario)) {
		c := s
		c.Faults = slices.Clone(s.Faults)
		change(&c)
		all = append(all, c)
	}
	for i := range s.Faults {
		with(func(c *Scenario) { c.Faults = slices.Delete(c.Faults, i, i+1) })
	}
	for _, steps := range []int{0, s.Steps / 2, s.Steps - 1} {
		if steps >= 0 && steps < s.Steps {
			with(func(c *Scenario) {
				for i := range c.Faults { // they move to the remaining steps
					c.Faults[i].Step = max(0, c.Faults[i].Step-(s.Steps-steps))
				}
				c.Steps, c.Evaluations = steps, s.Evaluations>>(s.Steps-steps)
			})
		}
	}
	for _, m := range []int{1, s.Microbatches / 2, s.Microbatches - 1} {
		if m >= 1 && m < s.Microbatches {
			with(func(c *Scenario) { c.Microbatches = m })
		}
	}
	for _, ranks := range []int{1, s.Ranks - 1} {
		if ranks >= 1 && ranks < s.Ranks {
			with(func(c *Scenario) { c.Stages, c.Ranks = c.Stages/c.Ranks*ranks, ranks })
		}
	}
	if s.Replicas > 1 {
		with(func(c *Scenario) { c.Replicas, c.Shard, c.Gathered = 0, 0, 0 })
	}
	if s.Shard > 0 {
		with(func(c *Scenario) { c.Shard-- })
	}
	if s.Replicas > 2 {
		with(func(c *Scenario) { c.Replicas-- })
	}
	if s.Stages > s.Ranks {
		with(func(c *Scenario) { c.Stages = c.Ranks })
	}
	if s.Schedule != "gpipe" {
		with(func(c *Scenario) { c.Schedule = "gpipe" })
	}
	for _, flag := range []func(*Scenario) *bool{
		func(c *Scenario) *bool { return &c.Apart }, func(c *Scenario) *bool { return &c.Recompute },
		func(c *Scenario) *bool { return &c.Stream }, func(c *Scenario) *bool { return &c.Planned },
		func(c *Scenario) *bool { return &c.Far }, func(c *Scenario) *bool { return &c.Prepares },
		func(c *Scenario) *bool { return &c.Ordered }, func(c *Scenario) *bool { return &c.Sums },
		func(c *Scenario) *bool { return &c.Bare }, func(c *Scenario) *bool { return &c.Varies },
		func(c *Scenario) *bool { return &c.Transformer }, func(c *Scenario) *bool { return &c.Copies }, func(c *Scenario) *bool { return &c.Outputs },
	} {
		if *flag(&s) {
			with(func(c *Scenario) { *flag(c) = false })
		}
	}
	if !s.Whole {
		with(func(c *Scenario) { c.Whole = true })
	}
	if s.LookAhead > 0 {
		with(func(c *Scenario) { c.LookAhead = 0 })
	}
	if s.Audits > 0 {
		with(func(c *Scenario) { c.Audits-- })
	}
	if s.Policy != uniform {
		with(func(c *Scenario) { c.Policy = uniform })
	}
	if s.Evaluations != 0 {
		with(func(c *Scenario) { c.Evaluations = 0 })
	}
	if s.Frozen != 0 {
		with(func(c *Scenario) { c.Frozen = 0 })
	}
	return all
}

// shrink returns the smallest failing scenario that it finds, given a failing one. It tries each candidate
// with several seeds, because the ranks of a smaller scenario take turns in a different order.
func shrink(s Scenario, fails func(Scenario) bool) Scenario {
	const seeds = 30
next:
	for _, c := range smaller(s) {
		for n := range uint64(seeds) {
			if c.Seed = s.Seed; n > 0 {
				c.Seed = n
			}
			if fails(c) {
				s = c
				goto next
			}
		}
	}
	return s
}
