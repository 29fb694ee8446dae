package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// checkPosted proves that the ranks of a valid PyTorch plan do not deadlock. They wait only in computations
// that take a message and at waits for sends, until the transfer is complete. It runs the ranks together
// with their queues. A queue is a separate program: its first transfer begins when both ends are posted and are the
// first in their queues, as under rendezvous.
func (c *Checker) checkPosted() {
	sets, links := c.Stages*passes.KindsPerStage, passes.NewLinks(&c.Outline)
	v := &postedVisitor{Outline: &c.Outline, queues: passes.NewQueues(&c.Outline, &links), complete: sets}
	v.machine = passes.NewQueued(&c.Outline, v.queues.Programs(&c.Outline, &links), 2*sets)
	v.sets = v.machine.Sets
	v.machine.Run(v)
	c.visited = max(c.visited, v.machine.Visited)
	if v.sets.Exhausted {
		c.undecided()
		return
	}
	for _, f := range faults(v.waiting()) {
		c.Add(f)
	}
}

// postedVisitor is the visitor of ranks that post transfers, and of their queues. Its sets hold the posted
// transfers and, after them, the complete receives.
type postedVisitor struct {
	*passes.Outline
	machine  passes.RoundRobin
	sets     *repeats.Sets // of the machine
	queues   passes.Queues
	complete int // the index of the first set of complete receives
}

// Step runs the next action of a rank or of a queue unless it has to wait, and reports whether it did.
func (v *postedVisitor) Step(at int, a schedule.Action) bool {
	mb := int64(a.Microbatch())
	if at >= len(v.Plan.Programs) {
		return v.transfer(a, mb)
	}
	if v.awaited(a) != 0 || a.Joined() && v.awaited(v.machine.Ranks[at].Partner()) != 0 {
		return false
	}
	if passes.Edge(a) >= 0 {
		v.sets.Add(v.Set(a.Stage(), a.Kind()), mb)
	}
	return true
}

// transfer runs the first transfer of a queue if both ends are posted and the other end is the first in its queue, and
// reports whether it did. The receive completes first, and the send after it.
func (v *postedVisitor) transfer(a schedule.Action, mb int64) bool {
	switch other := passes.OtherEnd(a); {
	case !v.posted(a) || !v.posted(other):
		return false
	case a.Kind() == schedule.SendF || a.Kind() == schedule.SendB:
		return v.sets.Has(v.complete+v.Set(other.Stage(), other.Kind()), mb)
	case !v.machine.Next(len(v.Plan.Programs)+v.queues.QueueOf(other), other):
		return false
	}
	v.sets.Add(v.complete+v.Set(a.Stage(), a.Kind()), mb)
	return true
}

// posted reports whether a rank has posted a transfer.
func (v *postedVisitor) posted(transfer schedule.Action) bool {
	return v.sets.Has(v.Set(transfer.Stage(), transfer.Kind()), int64(transfer.Microbatch()))
}

// awaited returns the transfer of its own rank for which an action must still wait, or 0.
func (v *postedVisitor) awaited(a schedule.Action) schedule.Action {
	stage, kind, mb := a.Stage(), a.Kind(), a.Microbatch()
	var own schedule.Action
	switch {
	case kind == schedule.F && v.Crosses(stage-1):
		own = schedule.NewAction(schedule.RecvF, stage, mb)
	case (kind == schedule.B || kind == schedule.I) && v.Crosses(stage):
		own = schedule.NewAction(schedule.RecvB, stage, mb)
	case kind == schedule.WaitF:
		own = schedule.NewAction(schedule.SendF, stage, mb)
	case kind == schedule.WaitB:
		own = schedule.NewAction(schedule.SendB, stage, mb)
	default:
		return 0
	}
	receive := own
	if kind == schedule.WaitF || kind == schedule.WaitB {
		receive = passes.OtherEnd(own)
	}
	if v.sets.Has(v.complete+v.Set(receive.Stage(), receive.Kind()), int64(mb)) {
		return 0
	}
	return own
}

// waiting returns the ranks that wait: at an action, or at the end of their programs for a transfer that is not
// complete.
func (v *postedVisitor) waiting() (list []waitgraph.Waiting) {
	for rank := range v.Plan.Programs {
		p := v.machine.Ranks[rank]
		w := waitgraph.Waiting{Rank: rank, Position: p.Position}
		a, ok := p.Action()
		own := v.awaited(a)
		switch {
		case !ok:
			for queue, of := range v.queues.Rank {
				if head, left := v.head(queue); left && of == rank {
					own, a = head, head
				}
			}
			if own == 0 {
				continue
			}
		case a.Joined():
			if w.With = p.Partner().WithDrop(0); own == 0 {
				own = v.awaited(w.With)
			}
		}
		w.Action = a.WithDrop(0).WithJoin(false)
		w.For, w.Behind = v.holdUp(own)
		w.ForRank = v.Plan.Placement.Rank[w.For.Stage()]
		list = append(list, w)
	}
	return list
}

// head returns the first transfer of a queue that is not complete, or false if there is none.
func (v *postedVisitor) head(queue int) (schedule.Action, bool) {
	return v.machine.Ranks[len(v.Plan.Programs)+queue].Action()
}

// holdUp returns the reason why a posted transfer cannot begin: the other end of the first transfer in its queue, and
// the transfer in front of the posted one or of that other end, or 0.
func (v *postedVisitor) holdUp(own schedule.Action) (other, front schedule.Action) {
	head, _ := v.head(v.queues.QueueOf(own))
	other = passes.OtherEnd(head)
	if head != own {
		return other, head
	}
	if v.posted(other) {
		front, _ = v.head(v.queues.QueueOf(other))
	}
	return other, front
}
