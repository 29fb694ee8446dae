package plantest

import "flag"
import "math/rand/v2"
import "slices"

import "github.com/weir-ml/weir/schedule"

var Seed = flag.Uint64("seed", 1, "of the random plans that are broken")

// grower makes a random valid plan: it does what can be done next, anything, and
// writes it down, until all is done.
type grower struct {
	rng       *rand.Rand
	j         *Judge // for the facts of the plan
	p         *schedule.Plan
	capacity  int
	transfers bool
	waits     bool
	split     func(stage, mb int) bool
	lists     [][]schedule.Action
	done      map[schedule.Action]bool
	links     map[[3]int][]schedule.Action
	left      []schedule.Action
	sharded   map[int]bool
	gathered  map[int]bool
	reduces   bool
	added     map[int]bool
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
	g := &grower{rng: rng, p: p, j: &Judge{P: p}, capacity: rng.IntN(4) - 1, transfers: rng.IntN(4) > 0, waits: rng.IntN(2) == 0,
		lists: make([][]schedule.Action, ranks), done: map[schedule.Action]bool{}, links: map[[3]int][]schedule.Action{},
		sharded: map[int]bool{}, gathered: map[int]bool{}, added: map[int]bool{}}
	mixed, all := rng.IntN(2) == 0, rng.IntN(2) == 0
	g.split = func(int, int) bool { return mixed && rng.IntN(2) == 0 || !mixed && all }
	if rng.IntN(4) == 0 {
		for s := range p.Placement.Rank {
			g.sharded[s] = rng.IntN(2) == 0
		}
	}
	g.reduces = rng.IntN(4) == 0
	g.grow()
	for _, list := range g.lists {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: list, Repeat: 1}})
		if len(list) == 0 {
			p.Programs[len(p.Programs)-1] = nil
		}
	}
	return p, g.capacity
}

// grow does everything that there is to do, in any order that works.
func (g *grower) grow() {
	for s := range g.p.Placement.Rank {
		for mb := range g.p.Microbatches {
			if !g.j.passes(s, mb) {
				continue
			}
			todo := []schedule.Kind{schedule.F}
			if g.j.backward(s) {
				switch {
				case g.j.frozen(s):
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
			if g.transfers && g.j.crosses(s) {
				g.left = append(g.left, schedule.Act(schedule.SendF, s, mb))
			}
			if g.transfers && s > 0 && g.j.crosses(s-1) && g.j.backward(s-1) {
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
			g.write(waits[i])
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

func (g *grower) write(a schedule.Action) {
	rank := g.p.Placement.Rank[a.Stage()]
	g.lists[rank] = append(g.lists[rank], a)
}

// ready reports whether a computation or a send can be done now.
func (g *grower) ready(a schedule.Action) bool {
	s, mb := a.Stage(), a.Microbatch()
	has := func(stage, mb int, kinds ...schedule.Kind) bool {
		return slices.ContainsFunc(kinds, func(k schedule.Kind) bool { return g.done[schedule.Act(k, stage, mb)] })
	}
	k := max(1, g.p.Slices)
	switch a.Kind() {
	case schedule.F:
		if mb%k != 0 && g.j.passes(s, mb-1) && !has(s, mb-1, schedule.F) {
			return false
		}
		if s%g.j.depth() == 0 {
			return true
		}
		if g.transfers && g.j.crosses(s-1) {
			return has(s, mb, schedule.RecvF)
		}
		return has(s-1, mb, schedule.F)
	case schedule.B, schedule.I:
		if (mb+1)%k != 0 && g.j.passes(s, mb+1) && !has(s, mb+1, schedule.B, schedule.I) || !has(s, mb, schedule.F) {
			return false
		}
		if (s+1)%g.j.depth() == 0 {
			return true
		}
		if g.transfers && g.j.crosses(s) {
			return has(s, mb, schedule.RecvB)
		}
		return has(s+1, mb, schedule.B, schedule.I)
	case schedule.W:
		return has(s, mb, schedule.I)
	case schedule.SendF:
		return has(s, mb, schedule.F) && (g.capacity <= 0 || len(g.links[g.j.link(a)]) < g.capacity)
	}
	return has(s, mb, schedule.B, schedule.I) && (g.capacity <= 0 || len(g.links[g.j.link(a)]) < g.capacity)
}

// compute does a computation, now and then joined with another one that can be done
// as well.
func (g *grower) compute(a schedule.Action) {
	g.gather(a.Stage())
	if g.rng.IntN(4) == 0 {
		with := slices.IndexFunc(g.left, func(b schedule.Action) bool {
			return b.Kind().Compute() && g.p.Placement.Rank[b.Stage()] == g.p.Placement.Rank[a.Stage()] && g.ready(b) &&
				(b.Stage() != a.Stage() || b.Microbatch() != a.Microbatch())
		})
		if with >= 0 {
			b := g.left[with]
			g.left = slices.Delete(g.left, with, with+1)
			g.gather(b.Stage())
			g.write(a.WithJoin(true))
			g.finish(a)
			g.write(b)
			g.finish(b)
			return
		}
	}
	g.write(a)
	g.finish(a)
}

func (g *grower) finish(a schedule.Action) {
	g.done[a] = true
	if a.Kind() == schedule.B || a.Kind() == schedule.W {
		g.added[a.Stage()] = true
	}
}

func (g *grower) gather(stage int) {
	if g.sharded[stage] && !g.gathered[stage] {
		g.write(schedule.Act(schedule.Unshard, stage, 0))
		g.gathered[stage] = true
	}
}

// shard gives up the weights of a stage, or reduces its gradients.
func (g *grower) shard(stage int, both bool) {
	if g.gathered[stage] && (both || g.rng.IntN(2) == 0) {
		g.write(schedule.Act(schedule.Reshard, stage, 0))
		g.gathered[stage] = false
	}
	if g.reduces && g.added[stage] && (both || g.rng.IntN(4) == 0) {
		g.write(schedule.Act(schedule.ReduceGrad, stage, 0))
		g.added[stage] = false
	}
}

// waitFor returns the wait for a send.
func waitFor(a schedule.Action) schedule.Action {
	kind := schedule.WaitF
	if a.Kind() == schedule.SendB {
		kind = schedule.WaitB
	}
	return schedule.Act(kind, a.Stage(), a.Microbatch())
}

// send sends, and under rendezvous receives at once; it reports whether it is over.
func (g *grower) send(a schedule.Action) bool {
	g.write(a)
	g.finish(a)
	link := g.j.link(a)
	g.links[link] = append(g.links[link], a)
	if g.capacity != 0 {
		return false
	}
	g.take(link)
	return true
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
	g.links[link] = g.links[link][1:]
	receive := schedule.Act(schedule.RecvF, sent.Stage()+1, sent.Microbatch())
	if sent.Kind() == schedule.SendB {
		receive = schedule.Act(schedule.RecvB, sent.Stage()-1, sent.Microbatch())
	}
	g.write(receive)
	g.done[receive] = true
	return sent
}

// Mutate breaks a plan of plain lists in one place. The plan that it is given stays as
// it is.
func Mutate(p *schedule.Plan, rng *rand.Rand) *schedule.Plan {
	q := *p
	q.Programs = nil
	lists := make([][]schedule.Action, len(p.Programs))
	var ranks []int // those that have anything
	for rank := range p.Programs {
		lists[rank] = slices.Collect(p.All(rank))
		if len(lists[rank]) > 0 {
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
		retarget(schedule.Kind(1+rng.IntN(int(schedule.Offload))), a.Stage(), a.Microbatch())
	case 7:
		*list = slices.Delete(*list, at, at+1)
		to := &lists[rng.IntN(len(lists))]
		*to = slices.Insert(*to, rng.IntN(len(*to)+1), a)
	}
	for _, list := range lists {
		q.Programs = append(q.Programs, nil)
		if len(list) > 0 {
			q.Programs[len(q.Programs)-1] = []schedule.Segment{{Body: list, Repeat: 1}}
		}
	}
	return &q
}
