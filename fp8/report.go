package fp8

import "iter"

// Report is what the tensors of a step met, by role.
type Report struct{ roles [numRoles]Counters }

// Counters are what the tensors of one role met in a step.
type Counters struct {
	Tensors int // slots of the role
	Unused  int // of which nothing but zeros was quantized
	// Frozen is how many met an infinity or NaN, and keep scale and history for it.
	Frozen int
	Tally  // of all of them, each element of a tensor once
}

func (r *Report) add(role Role, t *Tally) {
	c := &r.roles[role]
	c.Tensors++
	if t.Amax == 0 {
		c.Unused++
	}
	if !t.finite() {
		c.Frozen++
	}
	c.Merge(*t)
}

// Role returns the counters of a role.
func (r *Report) Role(role Role) Counters { return r.roles[role] }

// All iterates over the roles that have tensors.
func (r *Report) All() iter.Seq2[Role, Counters] {
	return func(yield func(Role, Counters) bool) {
		for role, c := range r.roles {
			if c.Tensors > 0 && !yield(Role(role), c) {
				return
			}
		}
	}
}

// Merge adds the counters of another step: tensors stay those of one step, numbers of
// elements add up.
func (r *Report) Merge(o *Report) {
	for role := range r.roles {
		c, other := &r.roles[role], &o.roles[role]
		c.Tensors = max(c.Tensors, other.Tensors)
		c.Unused += other.Unused
		c.Frozen += other.Frozen
		c.Tally.Merge(other.Tally)
	}
}
