package hang

import (
	"fmt"

	"github.com/weir-ml/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
)

// script is the program of a place in the pipeline, spelled out, with its transfers.
type script struct {
	actions   []schedule.Action
	transfers []transfer
	count     map[direction]int // of transfers, by direction
}

// transfer is one that the plan has.
type transfer struct {
	direction
	at int // in actions
}

// direction is a way that messages go, seen from one of its ends.
type direction struct {
	kind flightrec.Kind
	peer int // a place
}

// mostActions bounds how long a plan may be that dumps are compared with.
const mostActions = 4 << 20

// scripts spells the programs of a plan out.
func scripts(plan *schedule.Plan) ([]script, error) {
	var total int64
	for place := range plan.Programs {
		total += plan.Actions(place)
	}
	if total > mostActions {
		return nil, fmt.Errorf("the plan has %d actions, and up to %d are compared with dumps", total, mostActions)
	}
	all := make([]script, len(plan.Programs))
	for place := range all {
		s := &all[place]
		s.count = map[direction]int{}
		for a := range plan.All(place) {
			a = a.WithDrop(0).WithJoin(false)
			if d, crosses := directionOf(plan, a); crosses {
				s.transfers = append(s.transfers, transfer{d, len(s.actions)})
				s.count[d]++
			} else if !a.Kind().Compute() {
				continue
			}
			s.actions = append(s.actions, a)
		}
	}
	return all, nil
}

// directionOf returns the direction of a transfer.
func directionOf(plan *schedule.Plan, a schedule.Action) (d direction, crosses bool) {
	other := a.Stage() - 1
	switch a.Kind() {
	case schedule.SendF, schedule.RecvB:
		other = a.Stage() + 1
	case schedule.SendB, schedule.RecvF:
	default:
		return d, false
	}
	if other < 0 || other >= len(plan.Placement.Rank) {
		return d, false
	}
	d = direction{flightrec.Recv, plan.Placement.Rank[other]}
	if a.Kind() == schedule.SendF || a.Kind() == schedule.SendB {
		d.kind = flightrec.Send
	}
	return d, true
}

// cyclic returns a transfer of the step that repeats.
func (s *script) cyclic(i int) *transfer {
	n := len(s.transfers)
	return &s.transfers[((i%n)+n)%n]
}

// matches returns after how many transfers of a step a rank may be that has issued these last:
// 1 to all of them.
func (s *script) matches(issued []direction) (after []int) {
	for k := 1; k <= len(s.transfers); k++ {
		fits := true
		for i := 0; i < min(len(issued), len(s.transfers)) && fits; i++ {
			fits = s.cyclic(k-1-i).direction == issued[len(issued)-1-i]
		}
		if fits {
			after = append(after, k)
		}
	}
	return after
}

// within returns how many transfers of a direction are among the first ones of a step.
func (s *script) within(k int, d direction) (n int) {
	for i := range s.transfers[:k] {
		if s.transfers[i].direction == d {
			n++
		}
	}
	return n
}

// before returns the action before a position of the program, 0 before the first.
func (s *script) before(at int) schedule.Action {
	if at == 0 {
		return 0
	}
	return s.actions[at-1]
}
