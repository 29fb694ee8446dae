package plantest

import "flag"
import "math/rand/v2"
import "slices"

import "github.com/weir-ml/weir/schedule"

var Seed = flag.Uint64("seed", 1, "of the random plans that are broken")

// grower makes a random valid plan: it repeatedly takes any action that the judge allows and
// records it, until all are done.
type grower struct {
	*judge  // without lists
	rng     *rand.Rand
	waits   bool
	split   func(stage, mb int) bool
	written [][]schedule.Action
	left    []schedule.Action
	meets   bool // sends take effect with their receives
	reduced bool
}

// Grow returns a valid plan for links of some capacity, and the capacity.
func Grow(rng *rand.Rand) (*schedule.Plan, int) {
	ranks, copies := 1+rng.IntN(3), 1
	if rng.IntN(6) == 0 {
		copies = 2
	}
	depth := 1 + rng.IntN(4)
	if copies == 2 {
		depth = 1 + rng.IntN(2)
	}
	p := &schedule.Plan{Name: "grown", Microbatches: max(copies, 1+rng.IntN(4)), Placement: schedule.Placement{Ranks: ranks}}
	if copies == 2 {
		p.Placement.Copies = copies
	}
	for range copies * depth {
		p.Placement.Rank = append(p.Placement.Rank, rng.IntN(ranks))
	}
	if rng.IntN(4) == 0 {
		p.Slices = 2 + rng.IntN(2)
	}
	switch rng.IntN(8) {
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
	g := &grower{judge: newJudge(p, capacity), rng: rng, written: make([][]schedule.Action, ranks), meets: capacity == 0}
	if g.meets { // a send is received at once
		g.judge.capacity = schedule.Unlimited
	}
	g.transfers, g.waits = rng.IntN(4) > 0, rng.IntN(2) == 0
	mixed, all := rng.IntN(2) == 0, rng.IntN(2) == 0
	g.split = func(int, int) bool { return mixed && rng.IntN(2) == 0 || !mixed && all }
	if rng.IntN(4) == 0 {
		for s := range p.Placement.Rank {
			g.sharded[s] = rng.IntN(2) == 0
		}
	}
	g.reduced = rng.IntN(3) == 0
	g.accumulates = g.reduced && rng.IntN(2) == 0
	g.grow()
	p.Programs = listed(g.written)
	return p, capacity
}

// grow takes all actions, in any valid order.
func (g *grower) grow() {
	for s := range g.p.Placement.Rank {
		for mb := range g.p.Microbatches {
			if !g.passes(s, mb) {
				continue
			}
			todo := []schedule.Kind{schedule.F}
			if g.backward(s) {
				switch {
				case g.frozen(s):
					todo = append(todo, schedule.I)
				case g.split(s, mb):
					todo = append(todo, schedule.I, schedule.W)
				default:
					todo = append(todo, schedule.B)
				}
			}
			for _, k := range todo {
				g.left = append(g.left, schedule.Act(k, s, mb))
			}
			if g.transfers && g.crosses(s) {
				g.left = append(g.left, schedule.Act(schedule.SendF, s, mb))
			}
			if g.transfers && s > 0 && g.crosses(s-1) && g.backward(s-1) {
				g.left = append(g.left, schedule.Act(schedule.SendB, s, mb))
			}
		}
	}
	var waits []schedule.Action
	for len(g.left) > 0 || len(waits) > 0 || g.receivable() {
		switch n := g.rng.IntN(12); {
		case n == 0:
			g.shard(g.rng.IntN(len(g.p.Placement.Rank)), false)
		case n == 1 && len(waits) > 0:
			i := g.rng.IntN(len(waits))
			g.do(waits[i])
			waits = slices.Delete(waits, i, i+1)
		case n < 5:
			if sent, ok := g.receive(); ok && g.waits {
				waits = append(waits, waitFor(sent))
			}
		case len(g.left) > 0:
			i := g.rng.IntN(len(g.left))
			a := g.left[i]
			if !g.ready(a) {
				continue
			}
			g.left = slices.Delete(g.left, i, i+1)
			if a.Kind().Compute() {
				g.compute(a)
			} else if sent := g.send(a); sent && g.waits {
				waits = append(waits, waitFor(a))
			}
		}
	}
	for s := range g.p.Placement.Rank {
		g.shard(s, true)
	}
}

// ready reports whether a computation or a send can run now.
func (g *grower) ready(a schedule.Action) bool {
	blocked, broken := g.look(g.p.Placement.Rank[a.Stage()], a)
	return !blocked && !broken
}

// do runs an action and records it.
func (g *grower) do(a schedule.Action) {
	rank := g.p.Placement.Rank[a.Stage()]
	g.written[rank] = append(g.written[rank], a)
	if fault := g.run(a); fault != "" {
		panic(fault)
	}
}

// compute runs a computation, sometimes joined with another one that is ready.
func (g *grower) compute(a schedule.Action) {
	g.provide(a)
	if g.rng.IntN(4) == 0 {
		with := slices.IndexFunc(g.left, func(b schedule.Action) bool {
			return b.Kind().Compute() && g.p.Placement.Rank[b.Stage()] == g.p.Placement.Rank[a.Stage()] && g.ready(b) &&
				(b.Stage() != a.Stage() || b.Microbatch() != a.Microbatch())
		})
		if with >= 0 {
			b := g.left[with]
			g.left = slices.Delete(g.left, with, with+1)
			g.provide(b)
			g.do(a.WithJoin(true))
			g.do(b)
			return
		}
	}
	g.do(a)
}

// provide gathers the weights that a computation reads, and makes the gradients to which it adds.
func (g *grower) provide(a schedule.Action) {
	stage := a.Stage()
	if g.sharded[stage] && !g.gathered[stage] {
		g.do(schedule.Act(schedule.Unshard, stage, 0))
	}
	if !g.accumulates || a.Kind() != schedule.B && a.Kind() != schedule.W {
		return
	}
	if g.reducing[stage] {
		g.do(schedule.Act(schedule.WaitReduce, stage, 0))
	}
	if !g.whole[stage] {
		g.do(schedule.Act(schedule.ZeroGrad, stage, 0))
	}
}

// shard releases the weights of a stage, or reduces its gradients.
func (g *grower) shard(stage int, both bool) {
	if g.gathered[stage] && (both || g.rng.IntN(2) == 0) {
		g.do(schedule.Act(schedule.Reshard, stage, 0))
	}
	if g.reduced && g.added[stage] && (both || g.rng.IntN(4) == 0) {
		g.do(schedule.Act(schedule.ReduceGrad, stage, 0))
	}
	if g.accumulates && g.reducing[stage] && (both || g.rng.IntN(4) == 0) {
		g.do(schedule.Act(schedule.WaitReduce, stage, 0))
	}
}

// waitFor returns the wait of a send.
func waitFor(a schedule.Action) schedule.Action {
	kind := schedule.WaitF
	if a.Kind() == schedule.SendB {
		kind = schedule.WaitB
	}
	return schedule.Act(kind, a.Stage(), a.Microbatch())
}

// send sends, and under rendezvous receives at once; it reports whether it is done.
func (g *grower) send(a schedule.Action) bool {
	g.do(a)
	if g.meets {
		g.take(g.link(a))
	}
	return g.meets
}

func (g *grower) receivable() bool {
	for _, l := range g.links {
		if len(l) > 0 {
			return true
		}
	}
	return false
}

// receive receives the oldest message of some link.
func (g *grower) receive() (schedule.Action, bool) {
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
	return g.take(links[g.rng.IntN(len(links))]), true
}

func (g *grower) take(link [3]int) schedule.Action {
	sent := g.links[link][0]
	receive := schedule.Act(schedule.RecvF, sent.Stage()+1, sent.Microbatch())
	if sent.Kind() == schedule.SendB {
		receive = schedule.Act(schedule.RecvB, sent.Stage()-1, sent.Microbatch())
	}
	g.do(receive)
	return sent
}

// Mutate returns a copy of a plan of plain lists that is broken in one place.
func Mutate(p *schedule.Plan, rng *rand.Rand) *schedule.Plan {
	q := *p
	lists := Lists(p)
	var ranks []int // those with actions
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
		(*list)[at] = schedule.Act(kind, stage, mb).WithDrop(a.Drop()).WithJoin(a.Joined())
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
