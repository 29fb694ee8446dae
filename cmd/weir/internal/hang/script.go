package hang

import (
	"fmt"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule"
)

// script is the program of one place in the pipeline, with its transfers written out.
type script struct {
	actions   []schedule.Action // the first one is endOfStep, the end of the previous step
	transfers []transfer
	count     map[direction]int // number of transfers, by direction
}

// endOfStep represents the position after the last action of a step.
const endOfStep = schedule.Action(0)

// transfer is a transfer of the plan.
type transfer struct {
	direction
	at int // index in actions
}

// direction is the kind of a transfer and the place of its peer.
type direction struct {
	kind flightrec.OpKind
	peer int
}

// maxActions bounds the length of plans that dumps are compared with.
const maxActions = 4 << 20

// scripts writes out the programs of a plan.
func scripts(plan *schedule.Plan) ([]script, error) {
	var total int64
	for place := range plan.Programs {
		total += plan.Actions(place)
	}
	if total > maxActions {
		return nil, fmt.Errorf("the plan has %d actions, and up to %d are compared with dumps", total, maxActions)
	}
	all := make([]script, len(plan.Programs))
	for place := range all {
		s := &all[place]
		s.actions, s.count = []schedule.Action{endOfStep}, map[direction]int{}
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

// ends contains, for each kind of transfer, the kind of its entry and the stage of its peer relative
// to its own stage. The stage is 0 for other actions.
var ends = [schedule.NumKinds]struct {
	kind  flightrec.OpKind
	stage int
}{
	schedule.SendF: {flightrec.Send, 1}, schedule.RecvF: {flightrec.Recv, -1},
	schedule.SendB: {flightrec.Send, -1}, schedule.RecvB: {flightrec.Recv, 1},
}

// directionOf returns the direction of a transfer. crosses is false for any other action, and for a
// transfer beyond the first or the last stage.
func directionOf(plan *schedule.Plan, a schedule.Action) (d direction, crosses bool) {
	end := ends[a.Kind()]
	stage := a.Stage() + end.stage
	if end.stage == 0 || stage < 0 || stage >= len(plan.Placement.Rank) {
		return d, false
	}
	return direction{end.kind, plan.Placement.Rank[stage]}, true
}

// issued returns the transfer that a rank issued back transfers before its last one, assuming that it
// has issued k transfers of the step. Earlier steps issue the same transfers.
func (s *script) issued(k, back int) direction {
	n := len(s.transfers)
	return s.transfers[((k-1-back)%n+n)%n].direction
}

// countFirst returns how many of the first k transfers of a step have a direction.
func (s *script) countFirst(k int, d direction) (n int) {
	for _, t := range s.transfers[:k] {
		if t.direction == d {
			n++
		}
	}
	return n
}
