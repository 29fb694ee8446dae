package slots

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Fault is a fault of a table.
type Fault struct {
	Rank     int   // -1 if it concerns no single rank
	Position int64 // of the action in the rank's program; -1 if it concerns no single action
	Text     string
}

// maxFaults is the largest number of faults that Verify lists.
const maxFaults = 20

// Verify runs every action of a plan with the slots of a variant, and returns the faults that it finds:
// a slot is written while its tensor is alive, a tensor has no slot or two, or a pool does not have the
// least number of slots. It returns at most 20 faults. It shares with Make only the births and deaths of
// tensors. The plan must be valid.
func Verify(t *Table, variant int, plan *schedule.Plan) []Fault {
	return Walk(t, variant, plan, func(Life) {})
}

// Life is the time of a tensor in a slot.
type Life struct {
	Pool, Slot   int
	Direction    Direction
	Stage        int
	Microbatch   int64
	Birth, Death int64 // the positions of the action that writes it, and of the last action of its last moment
}

// Walk is like Verify, and calls visit for every tensor that has a slot, unless the variant does not exist or
// is not for the plan. It visits the tensors of a rank in the order of their deaths.
func Walk(t *Table, variant int, plan *schedule.Plan, visit func(Life)) []Fault {
	v := &verification{table: t, plan: plan, visit: visit}
	if variant < 0 || variant >= len(t.Variants) {
		v.fault(-1, -1, "there is no variant %d: the table has %d", variant, len(t.Variants))
		return v.faults
	}
	v.variant = &t.Variants[variant]
	if v.variant.Microbatches != plan.Microbatches || v.variant.Mode != plan.Mode.String() {
		v.fault(-1, -1, "the variant is for %s of %d microbatches, and the plan is %s of %d", v.variant.Mode, v.variant.Microbatches, plan.Mode, plan.Microbatches)
		return v.faults
	}
	if t.Hold != Taken && t.Hold != Last {
		v.fault(-1, -1, "hold is %q: it is %q or %q", t.Hold, Taken, Last)
	}
	list := steps(plan, t.Hold)
	v.written = map[class]bool{}
	for stage := range list {
		for kind := range list[stage] {
			for _, b := range list[stage][kind].births {
				v.written[b.class] = true
			}
		}
	}
	v.expand()
	for rank := range plan.Programs {
		v.run(rank, list)
	}
	return v.faults
}

// verification is the state of Verify.
type verification struct {
	table   *Table
	plan    *schedule.Plan
	variant *Variant
	written map[class]bool // the classes of the plan
	slots   map[rankClass]map[int64]assigned
	visit   func(Life)
	faults  []Fault
}

// rankClass is a class of tensors on a rank.
type rankClass struct {
	rank int
	class
}

// assigned is a slot of an assignment of the variant.
type assigned struct{ assignment, slot int }

// occupied is a slot, its tensor, and the position of its birth.
type occupied struct {
	assigned
	class class
	birth int64
}

func (v *verification) fault(rank int, position int64, format string, args ...any) {
	if len(v.faults) < maxFaults {
		v.faults = append(v.faults, Fault{rank, position, fmt.Sprintf(format, args...)})
	}
}

// expand turns the runs of the variant into slots by microbatch.
func (v *verification) expand() {
	v.slots = map[rankClass]map[int64]assigned{}
	needs := make([]int, len(v.table.Pools))
	for _, variant := range v.table.Variants {
		for _, a := range variant.Assignments {
			if a != nil && a.Pool >= 0 && a.Pool < len(needs) {
				needs[a.Pool] = max(needs[a.Pool], a.Slots)
			}
		}
	}
	for i, p := range v.table.Pools {
		if p.Slots != needs[i] {
			v.fault(p.Rank, -1, "pool %d has %d slots, and the plans need %d", i, p.Slots, needs[i])
		}
	}
	used := make([]bool, len(v.table.Pools))
	for i, a := range v.variant.Assignments {
		if a == nil || a.Pool < 0 || a.Pool >= len(v.table.Pools) || used[a.Pool] {
			v.fault(-1, -1, "assignment %d needs a pool of its own", i)
			continue
		}
		used[a.Pool] = true
		p := &v.table.Pools[a.Pool]
		for _, r := range a.Runs {
			most := v.plan.Microbatches
			fits := r.Count >= 1 && r.Count <= most && max(r.Stride, -r.Stride) < most && len(r.Slots) > 0 && r.Microbatch >= 0 && r.Microbatch < most
			if end := r.Microbatch + r.Stride*(r.Count-1); !fits || end < 0 || end >= most {
				v.fault(p.Rank, -1, "pool %d has a run of %d microbatches from %d and %d slots", a.Pool, r.Count, r.Microbatch, len(r.Slots))
				continue
			}
			of := rankClass{p.Rank, class{p.Tensor, r.Direction, r.Stage}}
			own := r.Stage >= 0 && r.Stage < v.plan.Placement.Stages() && v.plan.Placement.Rank[r.Stage] == p.Rank && v.written[of.class]
			if !own || p.Stage != nil && *p.Stage != r.Stage || p.Direction != "" && p.Direction != r.Direction {
				v.fault(p.Rank, -1, "pool %d has a run of stage %d, %s, which is not one of its own", a.Pool, r.Stage, r.Direction)
				continue
			}
			if v.slots[of] == nil {
				v.slots[of] = map[int64]assigned{}
			}
			for k := range r.Count {
				mb, slot := int64(r.Microbatch+k*r.Stride), r.Slots[k%len(r.Slots)]
				if _, twice := v.slots[of][mb]; twice || slot < 0 || slot >= a.Slots {
					v.fault(p.Rank, -1, "%s %s tensor of stage %d, microbatch %d: slot %d of %d, or a second slot", p.Tensor, r.Direction, r.Stage, mb, slot, a.Slots)
					break
				}
				v.slots[of][mb] = assigned{i, slot}
			}
		}
	}
}

// run runs the program of a rank.
func (v *verification) run(rank int, list [][schedule.NumKinds]step) {
	owners := map[assigned]held{} // of the slots in use
	live := map[held]occupied{}
	alive := make([]int, len(v.variant.Assignments))
	proofs := map[int64][]int{} // by position: the assignments of the rank whose number is proven there
	for i, a := range v.variant.Assignments {
		if a != nil && a.Pool >= 0 && a.Pool < len(v.table.Pools) && v.table.Pools[a.Pool].Rank == rank {
			proofs[a.At] = append(proofs[a.At], i)
		}
	}
	var pending []held
	position, moment, joined := int64(0), int64(0), false
	end := func(list []held) {
		for _, h := range list {
			it, ok := live[h]
			if !ok {
				continue
			}
			if owners[it.assigned] == h {
				delete(owners, it.assigned)
			}
			delete(live, h)
			alive[it.assignment]--
			v.visit(Life{v.variant.Assignments[it.assignment].Pool, it.slot, it.class.direction, it.class.stage, h.mb, it.birth, position - 1})
		}
	}
	for a := range v.plan.All(rank) {
		if !joined {
			moment = position
		}
		mb, s := int64(a.Microbatch()), &list[a.Stage()][a.Kind()]
		for _, b := range s.births {
			of := rankClass{rank, b.class}
			it, ok := v.slots[of][mb]
			if !ok {
				v.fault(rank, position, "%v writes a tensor (%s, %s) that has no slot", a, b.tensor, b.direction)
				continue
			}
			delete(v.slots[of], mb)
			if other, taken := owners[it]; taken {
				v.fault(rank, position, "%v writes slot %d of pool %d (%s) while the tensor of stage %d, microbatch %d, is alive in it",
					a, it.slot, v.variant.Assignments[it.assignment].Pool, b.tensor, other.stage, other.mb)
			}
			h := held{b.at, mb}
			owners[it], live[h] = h, occupied{it, b.class, position}
			if alive[it.assignment]++; alive[it.assignment] > v.variant.Assignments[it.assignment].Slots {
				v.fault(rank, position, "%v is one tensor more than pool %d has slots", a, v.variant.Assignments[it.assignment].Pool)
			}
		}
		for _, at := range s.deaths {
			pending = append(pending, held{at, mb})
		}
		position++
		if joined = a.Joined(); joined {
			continue
		}
		for _, i := range proofs[moment] {
			if a := v.variant.Assignments[i]; alive[i] != a.Slots {
				v.fault(rank, moment, "pool %d has %d slots, and %d tensors are alive at the action that proves that it needs them", a.Pool, a.Slots, alive[i])
			}
		}
		delete(proofs, moment)
		end(pending)
		pending = pending[:0]
	}
	end(slices.SortedFunc(maps.Keys(live), compareHeld))
	for at := range proofs {
		v.fault(rank, at, "no moment of the program begins here, and a pool is said to need its slots here")
	}
	for of, left := range v.slots {
		if of.rank == rank && len(left) > 0 {
			v.fault(rank, -1, "%d tensors have slots and are never written: %s, %s, stage %d", len(left), of.tensor, of.direction, of.stage)
		}
	}
}
