package fp8

import "iter"

// Statistics holds the statistics of a step's tensors, by role.
type Statistics struct{ roles [numRoles]Counters }

// Counters are the statistics of the tensors of one role in a step.
type Counters struct {
	Tensors int // number of slots with the role
	Unused  int // number of slots whose tensors were all zeros or were not quantized
	// Frozen is the number of slots that measured an infinity or NaN and therefore keep their
	// scale and history.
	Frozen int
	Tally  // merged over the slots; each element of a tensor is counted once
}

func (r *Statistics) add(role Role, t *Tally) {
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
func (r *Statistics) Role(role Role) Counters { return r.roles[role] }

// All iterates over the roles that have tensors.
func (r *Statistics) All() iter.Seq2[Role, Counters] {
	return func(yield func(Role, Counters) bool) {
		for role, c := range r.roles {
			if c.Tensors > 0 && !yield(Role(role), c) {
				return
			}
		}
	}
}

// Merge adds the counters of another step. Tensors remains the number of a single step; Unused and Frozen
// are added, and the tallies are merged.
func (r *Statistics) Merge(o *Statistics) {
	for role := range r.roles {
		c, other := &r.roles[role], &o.roles[role]
		c.Tensors = max(c.Tensors, other.Tensors)
		c.Unused += other.Unused
		c.Frozen += other.Frozen
		c.Tally.Merge(other.Tally)
	}
}
