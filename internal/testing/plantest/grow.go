package plantest

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// SeedFlag is the seed of random tests. 0 lets the test select one.
var SeedFlag = flag.Uint64("seed", 0, "the seed of random tests; 0 lets the test select one")

// Seed returns the seed of random plans: the flag, or 1.
func Seed() uint64 { return cmp.Or(*SeedFlag, 1) }

// grower makes a random valid plan: it appends actions that the judge allows, until all of them have run.
type grower struct {
	*judge         // its lists are empty
	rng            *rand.Rand
	addsWaits      bool
	split          func(stage, mb int) bool
	programs       [][]schedule.Action
	todo           []schedule.Action
	rendezvous     bool // the capacity is 0, so each send is followed by its receive
	addsReductions bool
}

// Features bounds the random plans of Grow.
type Features struct {
	Ranks, Depth, Microbatches int  // maxima; Depth counts the stages of a copy of the model
	Copies                     bool // some plans have two copies of the model
	Transfers                  bool // the plan has sends and receives
	Collectives                bool // it may gather weights and reduce gradients
	Runtime                    schedule.Runtime
}

// DrawFeatures returns the features of small plans, most of which have transfers.
func DrawFeatures(rng *rand.Rand) Features {
	return Features{Ranks: 3, Depth: 4, Microbatches: 4, Copies: true, Transfers: rng.IntN(4) > 0, Collectives: true}
}

// Grow returns a random plan and a capacity of links for which it is valid.
func Grow(rng *rand.Rand, f Features) (*schedule.Plan, int) {
	ranks, copies := 1+rng.IntN(f.Ranks), 1
	if f.Copies && rng.IntN(6) == 0 {
		copies = 2
	}
	depth := 1 + rng.IntN(f.Depth)
	if copies == 2 {
		depth = 1 + rng.IntN(2)
	}
	p := &schedule.Plan{Name: "grown", Runtime: f.Runtime, Microbatches: max(copies, 1+rng.IntN(f.Microbatches)), Placement: schedule.Placement{Ranks: ranks}}
	if copies == 2 {
		p.Placement.Copies = copies
	}
	for range copies * depth {
		p.Placement.Rank = append(p.Placement.Rank, rng.IntN(ranks))
	}
	if rng.IntN(4) == 0 {
		p.Slices = 2 + rng.IntN(2)
	}
	switch rng.IntN(5) {
	case 0:
		p.Mode = schedule.ForwardOnly
	case 1:
		p.Frozen = make([]bool, copies*depth)
		for s := range depth {
			frozen := rng.IntN(2) == 0 && s > 0
			for c := range copies {
				p.Frozen[c*depth+s] = frozen
			}
		}
		if depth > 1 && rng.IntN(2) == 0 { // a frozen prefix
			for c := range copies {
				p.Frozen[c*depth], p.Frozen[c*depth+depth-1] = true, false
			}
		}
	}
	capacity := rng.IntN(4) - 1
	g := &grower{judge: newJudge(p, capacity), rng: rng, programs: make([][]schedule.Action, ranks), rendezvous: capacity == 0}
	if g.rendezvous { // each send is received immediately
		g.judge.capacity = schedule.Unlimited
	}
	g.transfers, g.addsWaits = f.Transfers, rng.IntN(2) == 0
	mixed, all := rng.IntN(2) == 0, rng.IntN(2) == 0
	g.split = func(int, int) bool { return mixed && rng.IntN(2) == 0 || !mixed && all }
	if f.Collectives && rng.IntN(4) == 0 {
		for s := range p.Placement.Rank {
			g.sharded[s] = rng.IntN(2) == 0
		}
	}
	g.addsReductions = f.Collectives && rng.IntN(3) == 0
	g.accumulates = g.addsReductions && rng.IntN(2) == 0
	g.addsWaits = g.addsWaits || g.accumulates
	g.retires = g.addsWaits && f.Runtime.Posts()
	g.grow()
	p.Programs = listed(g.programs)
	return p, capacity
}

// grow runs all actions in a random valid order.
func (g *grower) grow() {
	g.todo = Computations(g.p, g.split)
	for s := range g.p.Placement.Rank {
		for mb := range g.p.Microbatches {
			if !passes(g.p, s, mb) {
				continue
			}
			if g.transfers && g.crosses(s) {
				g.todo = append(g.todo, schedule.NewAction(schedule.SendF, s, mb))
			}
			if g.transfers && s > 0 && g.crosses(s-1) && backward(g.p, s-1) {
				g.todo = append(g.todo, schedule.NewAction(schedule.SendB, s, mb))
			}
		}
	}
	var waits []schedule.Action
	for len(g.todo) > 0 || len(waits) > 0 || g.receivable() {
		switch n := g.rng.IntN(12); {
		case n == 0:
			g.release(g.rng.IntN(len(g.p.Placement.Rank)), false)
		case n == 1 && len(waits) > 0:
			i := g.rng.IntN(len(waits))
			g.record(waits[i])
			waits = slices.Delete(waits, i, i+1)
		case n < 5:
			if sent, ok := g.receiveAny(); ok && g.addsWaits {
				waits = append(waits, waitFor(sent))
			}
		case len(g.todo) > 0:
			i := g.rng.IntN(len(g.todo))
			a := g.todo[i]
			if !g.ready(a) {
				continue
			}
			g.todo = slices.Delete(g.todo, i, i+1)
			if a.Kind().Compute() {
				g.compute(a)
			} else if sent := g.send(a); sent && g.addsWaits {
				waits = append(waits, waitFor(a))
			}
		}
	}
	for s := range g.p.Placement.Rank {
		g.release(s, true)
	}
}

// ready reports whether a computation or a send can run now.
func (g *grower) ready(a schedule.Action) bool {
	blocked, broken := g.readiness(g.p.Placement.Rank[a.Stage()], a)
	return !blocked && !broken
}

// record runs an action and appends it to its program.
func (g *grower) record(a schedule.Action) {
	rank := g.p.Placement.Rank[a.Stage()]
	g.programs[rank] = append(g.programs[rank], a)
	if fault := g.apply(a); fault != "" {
		panic(fault)
	}
}

// compute runs a computation, sometimes joined with another that is ready.
func (g *grower) compute(a schedule.Action) {
	g.prepare(a)
	if g.rng.IntN(4) == 0 {
		with := slices.IndexFunc(g.todo, func(b schedule.Action) bool {
			return b.Kind().Compute() && g.p.Placement.Rank[b.Stage()] == g.p.Placement.Rank[a.Stage()] && g.ready(b) &&
				(b.Stage() != a.Stage() || b.Microbatch() != a.Microbatch())
		})
		if with >= 0 {
			b := g.todo[with]
			g.todo = slices.Delete(g.todo, with, with+1)
			g.prepare(b)
			g.record(a.WithJoin(true))
			g.record(b)
			return
		}
	}
	g.record(a)
}

// prepare gathers the weights of a computation, and allocates the gradients to which it adds.
func (g *grower) prepare(a schedule.Action) {
	stage := a.Stage()
	if g.sharded[stage] && !g.gathered[stage] {
		g.record(schedule.NewAction(schedule.Unshard, stage, 0))
	}
	if a.Kind() != schedule.B && a.Kind() != schedule.W {
		return
	}
	if (g.accumulates || g.retires) && g.reducing[stage] {
		g.record(schedule.NewAction(schedule.WaitReduce, stage, 0))
	}
	if g.accumulates && !g.wholeGradients[stage] {
		g.record(schedule.NewAction(schedule.ZeroGrad, stage, 0))
	}
}

// release sometimes releases the weights of a stage and reduces its gradients, or always if all is set.
func (g *grower) release(stage int, all bool) {
	if g.gathered[stage] && (all || g.rng.IntN(2) == 0) {
		g.record(schedule.NewAction(schedule.Reshard, stage, 0))
	}
	if g.addsReductions && g.unreduced[stage] && (all || g.rng.IntN(4) == 0) {
		for other, rank := range g.p.Placement.Rank {
			if g.retires && g.reducing[other] && rank == g.p.Placement.Rank[stage] {
				g.record(schedule.NewAction(schedule.WaitReduce, other, 0))
			}
		}
		g.record(schedule.NewAction(schedule.ReduceGrad, stage, 0))
	}
	if (g.accumulates || g.retires) && g.reducing[stage] && (all || g.rng.IntN(4) == 0) {
		g.record(schedule.NewAction(schedule.WaitReduce, stage, 0))
	}
}

// waitFor returns the wait of a send.
func waitFor(a schedule.Action) schedule.Action {
	kind := schedule.WaitF
	if a.Kind() == schedule.SendB {
		kind = schedule.WaitB
	}
	return schedule.NewAction(kind, a.Stage(), a.Microbatch())
}

// send runs a send. With rendezvous it also runs the receive, and returns true.
func (g *grower) send(a schedule.Action) bool {
	g.record(a)
	if g.rendezvous {
		g.receiveFrom(g.link(a))
	}
	return g.rendezvous
}

// receivable reports whether any link has a message.
func (g *grower) receivable() bool {
	for _, l := range g.links {
		if len(l) > 0 {
			return true
		}
	}
	return false
}

// receiveAny receives the oldest message of a random link. It returns the send, or false if no link
// has a message.
func (g *grower) receiveAny() (schedule.Action, bool) {
	var links [][3]int
	for l, messages := range g.links {
		if len(messages) > 0 {
			links = append(links, l)
		}
	}
	if len(links) == 0 {
		return 0, false
	}
	slices.SortFunc(links, func(a, b [3]int) int { return slices.Compare(a[:], b[:]) })
	return g.receiveFrom(links[g.rng.IntN(len(links))]), true
}

// receiveFrom receives the oldest message of a link. It returns the send.
func (g *grower) receiveFrom(link [3]int) schedule.Action {
	sent := g.links[link][0]
	receive := schedule.NewAction(schedule.RecvF, sent.Stage()+1, sent.Microbatch())
	if sent.Kind() == schedule.SendB {
		receive = schedule.NewAction(schedule.RecvB, sent.Stage()-1, sent.Microbatch())
	}
	g.record(receive)
	return sent
}

// Mutate returns a copy of a plan without repeats, with one random change, which may leave the plan
// as it is.
func Mutate(p *schedule.Plan, rng *rand.Rand) *schedule.Plan {
	q := *p
	lists := Lists(p)
	var ranks []int // with actions
	for rank, list := range lists {
		if len(list) > 0 {
			ranks = append(ranks, rank)
		}
	}
	rank := ranks[rng.IntN(len(ranks))]
	list := &lists[rank]
	at := rng.IntN(len(*list))
	a := (*list)[at]
	retarget := func(kind schedule.Kind, stage, mb int) {
		(*list)[at] = schedule.NewAction(kind, stage, mb).WithDrop(a.Drop()).WithJoin(a.Joined())
	}
	stages := len(p.Placement.Rank)
	switch rng.IntN(8) {
	case 0:
		*list = slices.Delete(*list, at, at+1)
	case 1:
		*list = slices.Insert(*list, rng.IntN(len(*list)+1), a)
	case 2, 3:
		other := rng.IntN(len(*list))
		if rng.IntN(2) == 0 {
			other = min(at+1, len(*list)-1)
		}
		(*list)[at], (*list)[other] = (*list)[other], a
	case 4:
		retarget(a.Kind(), rng.IntN(stages+1), a.Microbatch())
	case 5:
		retarget(a.Kind(), a.Stage(), rng.IntN(p.Microbatches+1))
	case 6:
		if rng.IntN(3) == 0 {
			(*list)[at] = a.WithJoin(!a.Joined())
			break
		}
		retarget(schedule.Kind(1+rng.IntN(int(schedule.Quantize))), a.Stage(), a.Microbatch())
	case 7:
		*list = slices.Delete(*list, at, at+1)
		to := &lists[rng.IntN(len(lists))]
		*to = slices.Insert(*to, rng.IntN(len(*to)+1), a)
	}
	q.Programs = listed(lists)
	return &q
}
