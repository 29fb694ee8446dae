package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// checkProgress proves that the ranks do not deadlock if each link has the capacity. It runs
// all ranks together and checks only dependencies between ranks. It tries rendezvous first, because
// a plan that finishes under rendezvous finishes with any capacity: if each send moves to immediately
// before its receive, the same run is possible on links that hold one message, and in the queues of every
// version of PyTorch.
func (c *Checker) checkProgress(capacity int64) {
	if len(c.Plan.Programs) == 1 {
		return
	}
	if capacity != 0 && c.Transfers && len(c.Faults) == 0 {
		v := c.run(0, nil)
		if c.rendezvous = v.machine.Done(); c.rendezvous {
			c.visited = max(c.visited, v.machine.Visited)
			return
		}
	}
	if capacity < 0 && c.Transfers && c.Plan.Runtime.Posts() && len(c.Faults) == 0 {
		c.checkPosted()
		return
	}
	v := c.run(capacity, nil)
	c.visited = max(c.visited, v.machine.Visited)
	c.rendezvous = capacity == 0 && v.machine.Done()
	if v.sets.Exhausted {
		c.undecided()
		return
	}
	still := Standstill{&c.Outline, v.links, v.machine.Ranks}
	for _, f := range still.Faults() {
		f.Text += v.fullLink(f.Cycle)
		c.Add(f)
	}
}

// unlimited is the limit of a link with any capacity. It exceeds the sum of the sizes of all messages.
const unlimited = int64(1) << 62

// run advances all ranks as far as possible. By Lemma 1 of package passes, they reach the same
// configuration in every order. Each link has the capacity, or its own if that is larger.
func (c *Checker) run(capacity int64, own []int64) *progressVisitor {
	sets := c.Stages * passes.KindsPerStage
	v := &progressVisitor{c: c, links: passes.NewLinks(&c.Outline), totals: sets}
	v.machine = passes.NewRoundRobin(&c.Outline, 2*sets, len(v.links.From))
	v.sets = v.machine.Sets
	for set, total := range c.totals {
		v.sets.Put(sets+set, total)
	}
	for link := range v.machine.Limits {
		v.machine.Limits[link] = capacity
		if capacity < 0 {
			v.machine.Limits[link] = unlimited
		} else if own != nil {
			v.machine.Limits[link] = max(capacity, own[link])
		}
	}
	v.machine.Periodic = v.machine.Periodic && !c.sizes.Vary
	v.machine.Run(v)
	return v
}

// progressVisitor is the visitor whose ranks wait only for other ranks. Its sets hold the completed
// actions for which another rank may wait. Its counts are, by link, the total size of the messages on the link.
type progressVisitor struct {
	c       *Checker
	machine passes.RoundRobin
	sets    *repeats.Sets // of the machine
	links   passes.Links
	totals  int // the index of the first of the sets that hold all actions of the plan
}

// Step runs an action unless it has to wait for another rank, and reports whether it did. The first action of
// a joined pair waits for the dependencies of both.
func (v *progressVisitor) Step(rank int, a schedule.Action) bool {
	if v.c.Transfers && a.Kind().Compute() {
		return true // only transfers wait for other ranks
	}
	mb := int64(a.Microbatch())
	if !v.ready(a, mb) {
		return false
	}
	if a.Joined() {
		if with := v.machine.Ranks[rank].Partner(); with.Kind().Compute() && !v.ready(with, int64(with.Microbatch())) {
			return false
		}
	}
	v.record(a, mb)
	return true
}

// ready reports whether an action can run without waiting for another rank.
func (v *progressVisitor) ready(a schedule.Action, mb int64) bool {
	stage, kind := a.Stage(), a.Kind()
	if kind > schedule.WaitB || !v.c.counted && (!v.c.allows(stage, kind) || v.sets.Has(v.c.Set(stage, kind), mb)) {
		return true // an earlier check has reported the action, or it needs no other rank
	}
	switch kind {
	case schedule.F:
		return v.c.Transfers || !v.c.Crosses(stage-1) || v.done(stage-1, schedule.F, schedule.None, mb)
	case schedule.B, schedule.I:
		return v.c.Transfers || !v.c.Crosses(stage) || v.done(stage+1, schedule.B, schedule.I, mb)
	case schedule.SendF, schedule.SendB:
		e := passes.Edge(a)
		if size := v.c.size(e, mb); !v.rendezvous(e, size) {
			return v.machine.Room(v.links.Of[e], size)
		}
		return v.done(passes.Receiver(e), kind+schedule.RecvF-schedule.SendF, schedule.None, mb)
	case schedule.RecvF, schedule.RecvB:
		e := passes.Edge(a)
		if v.rendezvous(e, v.c.size(e, mb)) {
			return v.machine.Next(v.links.From[v.links.Of[e]], passes.Sent(e, mb)) || v.missing(e/2, kind-schedule.RecvF+schedule.SendF, schedule.None, mb)
		}
		return v.done(e/2, kind-schedule.RecvF+schedule.SendF, schedule.None, mb)
	case schedule.WaitF: // checkOrder has reported a wait before its send
		return v.done(stage+1, schedule.RecvF, schedule.None, mb) || !v.sets.Has(v.c.Set(stage, schedule.SendF), mb)
	case schedule.WaitB:
		return v.done(stage-1, schedule.RecvB, schedule.None, mb) || !v.sets.Has(v.c.Set(stage, schedule.SendB), mb)
	}
	return true
}

// rendezvous reports whether a message is larger than the capacity of its edge's link, so that its send
// and its receive complete together.
func (v *progressVisitor) rendezvous(e int, size int64) bool {
	return size > v.machine.Limits[v.links.Of[e]]
}

// done reports whether an action of either kind is done. It also returns true if the plan lacks both
// actions, which the census has reported.
func (v *progressVisitor) done(stage int, kind, or schedule.Kind, mb int64) bool {
	return v.sets.Has(v.c.Set(stage, kind), mb) || or != schedule.None && v.sets.Has(v.c.Set(stage, or), mb) || v.missing(stage, kind, or, mb)
}

// missing reports whether the plan lacks the actions of both kinds.
func (v *progressVisitor) missing(stage int, kind, or schedule.Kind, mb int64) bool {
	return !v.c.counted && !v.sets.Has(v.totals+v.c.Set(stage, kind), mb) && (or == schedule.None || !v.sets.Has(v.totals+v.c.Set(stage, or), mb))
}

// record marks an action as done if another rank may wait for it, and updates the count of its link.
func (v *progressVisitor) record(a schedule.Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	if !v.observed(stage, kind) || !v.sets.Add(v.c.Set(stage, kind), mb) || kind.Compute() {
		return
	}
	e := passes.Edge(a)
	link, size := &v.machine.Counts[v.links.Of[e]], v.c.size(e, mb)
	switch {
	case v.rendezvous(e, size):
	case kind == schedule.SendF || kind == schedule.SendB:
		if !v.missing(passes.Receiver(e), kind+schedule.RecvF-schedule.SendF, schedule.None, mb) {
			*link += size
		}
	case !v.missing(e/2, kind-schedule.RecvF+schedule.SendF, schedule.None, mb):
		*link -= size
	}
}

// observed reports whether another rank may wait for actions of the kind on the stage.
func (v *progressVisitor) observed(stage int, kind schedule.Kind) bool {
	switch kind {
	case schedule.F:
		return !v.c.Transfers && v.c.Crosses(stage)
	case schedule.B, schedule.I:
		return !v.c.Transfers && v.c.Crosses(stage-1)
	case schedule.SendF, schedule.RecvF, schedule.SendB, schedule.RecvB:
		return v.c.allows(stage, kind)
	}
	return false
}
