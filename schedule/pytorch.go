package schedule

import (
	"fmt"
	"slices"
)

// PyTorch says which of the lowering passes of torch.distributed.pipelining run. The
// zero value is what loading a compute-only schedule does for weights that are not
// sharded and gradients that nobody reduces.
type PyTorch struct {
	Merge  bool // adjacent I and W become B (_merge_bw)
	Active int  // stages whose sharded weights are gathered (_add_unshard_reshard; PyTorch takes 3); 0: no weights are sharded
	Reduce bool // gradients are reduced (_add_reduce_grad)
	Defer  bool // receives are moved to what takes them (_defer_recv_ops)
}

// LowerPyTorch returns the plan with the transfers that PyTorch would put into it
// (_add_send_recv), action for action, as plain lists: a send behind what makes its
// message, and the receive at once behind what the receiver has in its list by then. The
// buffers of sends end with the step, so there are no waits, and such a plan runs in
// PyTorch but has no lifetimes. Use [Comms] for plans that run here.
//
// It differs from PyTorch in what that would get wrong: no gradient is sent to a stage
// that has no backward. Where two stages are given up at once, which is only before or
// behind a joined pair, the lower one comes first; there the order is that of a set.
//
// The plan must be valid: the error is that of Check where it is not. One that has
// transfers, gathers or reduces already is ErrParams, as is one of more than 16 million
// actions. Drops that the plan had are forgotten.
func LowerPyTorch(plan *Plan, passes PyTorch) (*Plan, error) {
	if err := Check(plan); err != nil {
		return nil, err
	}
	total := int64(0)
	for rank := range plan.Programs {
		total += plan.Actions(rank)
	}
	if total > maxListed {
		return nil, fmt.Errorf("%w: plan %q has %d actions, and lists of more than %d are not made: use fewer microbatches", ErrParams, plan.Name, total, maxListed)
	}

	lowered := withoutDrops(plan)
	if passes.Merge {
		lowered = Merge(lowered)
	}
	if passes.Active > 0 {
		for rank, program := range lowered.Programs {
			lowered.Programs[rank] = gathering{active: passes.Active, pairs: true}.program(program)
		}
	}
	if passes.Reduce {
		var err error
		if lowered, err = ReduceGradients(lowered); err != nil {
			return nil, err
		}
	}
	o := newOutline(lowered)
	if o.transfers {
		return nil, fmt.Errorf("%w: plan %q has transfers already: give the plan that only computes", ErrParams, plan.Name)
	}
	rest := make([][]Action, len(lowered.Programs))
	for rank := range rest {
		rest[rank] = slices.Collect(lowered.All(rank))
	}
	for rank, list := range o.sendReceive(rest) {
		if passes.Defer {
			list = deferReceives(list, plan.Placement, rank)
		}
		if len(rest[rank]) > 0 {
			return nil, fmt.Errorf("%w: %w: rank %d cannot go on to %v in plan %q", ErrInvalidPlan, ErrDeadlock, rank, rest[rank][0], plan.Name)
		}
		lowered.Programs[rank] = []Segment{{Body: list, Repeat: 1}}
	}
	return lowered, nil
}

// maxListed bounds the actions of a plan that is written out.
const maxListed = 1 << 24

// sendReceive takes from the rest of each rank in turn its next computation, or joined
// pair, if what it takes is in the rank's list already. An idle cell, None, uses up a
// turn. It returns the lists, and leaves what cannot go on.
func (o *outline) sendReceive(rest [][]Action) [][]Action {
	links := newLinks(o)
	lists := make([][]Action, len(rest))
	arrived := make([]runs, len(links.of)) // by edge: microbatches whose receive is in a list
	ready := func(a Action) bool {
		in, mb := links.takes(a), int64(a.Microbatch())
		if in < 0 {
			return true
		}
		i := arrived[in].at(mb)
		return i < len(arrived[in]) && arrived[in][i].lo <= mb
	}
	for progress := true; progress; {
		progress = false
		for rank, list := range rest {
			n := 1
			if len(list) > 0 && list[0].Joined() {
				n = 2
			}
			if len(list) < n || !ready(list[0]) || !ready(list[n-1]) {
				continue
			}
			rest[rank], progress = list[n:], true
			if list[0].Kind() == None {
				continue
			}
			lists[rank] = append(lists[rank], list[:n]...)
			for _, a := range list[:n] {
				if out, mb := links.makes(a), int64(a.Microbatch()); out >= 0 {
					to := links.to[links.of[out]]
					lists[rank] = append(lists[rank], sent(out, mb))
					lists[to] = append(lists[to], received(out, mb))
					arrived[out].add(mb)
				}
			}
		}
	}
	return lists
}

// deferReceives moves each receive in the list of a rank to right before what takes it.
// Before a send to a higher rank stand all receives from that rank which come before the
// send in the list: so of two ranks that send to each other the lower one receives first.
func deferReceives(list []Action, placement Placement, rank int) []Action {
	deferred := make([]Action, 0, len(list))
	var waiting []Action // receives that are not placed yet, in order
	place := func(which func(receive Action) bool) {
		waiting = slices.DeleteFunc(waiting, func(receive Action) bool {
			if !which(receive) {
				return false
			}
			deferred = append(deferred, receive)
			return true
		})
	}
	takes := func(a Action) Action {
		kind := None
		switch a.Kind() {
		case F:
			kind = RecvF
		case B, I:
			kind = RecvB
		}
		return Act(kind, a.Stage(), a.Microbatch())
	}
	for i, a := range list {
		switch kind := a.Kind(); {
		case kind == RecvF || kind == RecvB:
			waiting = append(waiting, a)
			continue
		case kind == SendF || kind == SendB:
			if peer := placement.Rank[sentTo(a)]; rank < peer {
				place(func(receive Action) bool { return placement.Rank[receivedFrom(receive)] == peer })
			}
		case i > 0 && list[i-1].Joined(): // received before the pair
		default:
			place(func(receive Action) bool { return receive == takes(a) })
			if a.Joined() {
				place(func(receive Action) bool { return receive == takes(list[i+1]) })
			}
		}
		deferred = append(deferred, a)
	}
	return deferred
}

// sentTo returns the stage that a send goes to, receivedFrom that which a receive comes
// from.
func sentTo(send Action) int {
	if send.Kind() == SendF {
		return send.Stage() + 1
	}
	return send.Stage() - 1
}

func receivedFrom(receive Action) int {
	if receive.Kind() == RecvF {
		return receive.Stage() - 1
	}
	return receive.Stage() + 1
}
