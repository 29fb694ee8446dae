package schedule

import (
	"fmt"
	"strings"
)

// order proves that every action comes after those that it needs.
func (c *checker) order() {
	sets := c.stages * kindsPerStage
	v := &ordering{c: c, walk: newWalk(2 * sets), totals: sets}
	copy(v.sets[sets:], c.totals)
	if len(c.plan.Programs) == 1 {
		v.program(c.plan.Programs[0], false, v)
		c.unproved(&v.walk, 0)
		return
	}
	v.ranks()
}

// ordering is the visitor that does the actions in the order of the plan.
type ordering struct {
	walk
	c      *checker
	rank   int
	totals int // the index of the first set that says what the plan has at all

	links map[[2]int][]Action // sends on their way, by sending and receiving rank
}

// need is an action that another one needs: of either kind, where there are two.
type need struct {
	kind, or Kind
	stage    int
	remote   bool // on another rank, and nothing is sent: the rank waits for it
	why      string
}

// needs returns what a computation, a send or a wait needs; the first need is the
// one that was there first.
func (c *checker) needs(stage int, kind Kind) (list [2]need, n int) {
	saved := need{kind: F, stage: stage, why: "which saves what it takes"}
	switch kind {
	case F:
		switch {
		case stage == 0:
			return list, 0
		case c.crosses(stage-1) && c.transfers:
			list[0] = need{kind: RecvF, stage: stage, why: "which brings its input"}
		default:
			list[0] = need{kind: F, stage: stage - 1, remote: c.crosses(stage - 1), why: "whose output it reads"}
		}
		return list, 1
	case B, I:
		list[0] = saved
		switch {
		case stage == c.stages-1:
			return list, 1
		case c.crosses(stage) && c.transfers:
			list[1] = need{kind: RecvB, stage: stage, why: "which brings the gradient of its output"}
		default:
			list[1] = need{kind: B, or: I, stage: stage + 1, remote: c.crosses(stage), why: "whose gradient it reads"}
		}
		return list, 2
	case W:
		list[0] = need{kind: I, stage: stage, why: "which saves what it takes"}
	case SendF:
		list[0] = need{kind: F, stage: stage, why: "whose output it sends"}
	case SendB:
		list[0] = need{kind: B, or: I, stage: stage, why: "whose gradient it sends"}
	case WaitF:
		list[0] = need{kind: SendF, stage: stage, why: "which it waits for"}
	case WaitB:
		list[0] = need{kind: SendB, stage: stage, why: "which it waits for"}
	default:
		return list, 0
	}
	return list, 1
}

// met reports whether what is needed is done, or is not in the plan at all,
// which the census has said.
func (v *ordering) met(n need, mb int64) bool {
	has := func(first int, kind Kind) bool {
		return kind != None && v.has(first+v.c.set(n.stage, kind), mb)
	}
	return has(0, n.kind) || has(0, n.or) || !has(v.totals, n.kind) && !has(v.totals, n.or)
}

func (v *ordering) repeats(int64) {}

// visit does an action, whatever it still needs on this rank.
func (v *ordering) visit(a Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if c.ruledOut(stage, kind) != "" {
		return
	}
	needs, n := c.needs(stage, kind)
	for i, need := range needs[:n] {
		if !v.met(need, mb) {
			first := Act(need.kind, need.stage, 0).Shift(int(mb))
			if need.or != None && v.has(v.totals+c.set(need.stage, need.or), mb) {
				first = Act(need.or, need.stage, 0).Shift(int(mb))
			}
			c.at(&v.walk, v.rank, a, mb, Order, fmt.Sprint(i), "runs before %v, %s; move %v before it.", first, need.why, first)
		}
	}
	v.add(c.set(stage, kind), mb)
}

// cursor is where a rank is in its program.
type cursor struct {
	program  []Segment
	segment  int
	repeat   int
	index    int
	position int64
}

// action returns the rank's next action; false at the end.
func (p *cursor) action() (Action, bool) {
	if p.segment == len(p.program) {
		return 0, false
	}
	s := &p.program[p.segment]
	return s.Body[p.index].Shift(p.repeat * s.Stride), true
}

func (p *cursor) advance() {
	s := &p.program[p.segment]
	p.position++
	if p.index++; p.index < len(s.Body) {
		return
	}
	p.index = 0
	if p.repeat++; p.repeat < s.Repeat {
		return
	}
	p.repeat, p.segment = 0, p.segment+1
}

// ranks lets each rank in turn go on as far as it can. What a rank can do never
// depends on how far the others have gone beyond what it needs, so one such run
// decides for every timing.
func (v *ordering) ranks() {
	v.links = map[[2]int][]Action{}
	at := make([]cursor, len(v.c.plan.Programs))
	for rank, program := range v.c.plan.Programs {
		at[rank].program = program
	}
	for progress := true; progress; {
		progress = false
		for rank := range at {
			p := &at[rank]
			v.rank = rank
			for a, ok := p.action(); ok; a, ok = p.action() {
				if _, blocked := v.blocked(a); blocked {
					break
				}
				v.segment, v.index, v.position = p.segment, p.index, p.position
				v.transfer(a)
				v.visit(a, int64(a.Microbatch()))
				p.advance()
				progress = true
				if v.work++; v.work > maxWork {
					v.exhausted = true
					v.c.unproved(&v.walk, rank)
					return
				}
			}
		}
	}
	v.deadlock(at)
}

// blocked returns what the next action of the rank waits for on another rank.
func (v *ordering) blocked(a Action) (Action, bool) {
	stage, mb := a.Stage(), a.Microbatch()
	if send, link, ok := v.receives(a); ok {
		return Act(send, link.stage, mb), len(v.links[link.ranks]) == 0
	}
	needs, n := v.c.needs(stage, a.Kind())
	for _, need := range needs[:n] {
		if need.remote && !v.met(need, int64(mb)) {
			return Act(need.kind, need.stage, mb), true
		}
	}
	return 0, false
}

// link is the way to a receive: the stage that sends, and the ranks.
type link struct {
	stage int
	ranks [2]int
}

// receives returns the send that a receive is for; false for other actions.
func (v *ordering) receives(a Action) (Kind, link, bool) {
	rank, stage := v.c.plan.Placement.Rank, a.Stage()
	switch a.Kind() {
	case RecvF:
		return SendF, link{stage - 1, [2]int{rank[stage-1], rank[stage]}}, true
	case RecvB:
		return SendB, link{stage + 1, [2]int{rank[stage+1], rank[stage]}}, true
	}
	return None, link{}, false
}

// transfer puts a send on its link, or takes from its link what a receive gets.
func (v *ordering) transfer(a Action) {
	rank, stage := v.c.plan.Placement.Rank, a.Stage()
	switch a.Kind() {
	case SendF:
		to := [2]int{rank[stage], rank[stage+1]}
		v.links[to] = append(v.links[to], a)
	case SendB:
		to := [2]int{rank[stage], rank[stage-1]}
		v.links[to] = append(v.links[to], a)
	case RecvF, RecvB:
		kind, from, _ := v.receives(a)
		got := v.links[from.ranks][0].WithDrop(0).WithJoin(false)
		v.links[from.ranks] = v.links[from.ranks][1:]
		if want := Act(kind, from.stage, a.Microbatch()); got != want {
			v.c.at(&v.walk, v.rank, a, int64(a.Microbatch()), Pairing, "",
				"receives %v, which rank %d sent before %v; send and receive in the same order.", got, from.ranks[0], want)
		}
	}
}

// deadlock adds a fault that names every rank that has not come to its end.
func (v *ordering) deadlock(at []cursor) {
	const named = 16
	var b strings.Builder
	stuck, first := 0, Fault{}
	for rank := range at {
		a, ok := at[rank].action()
		if !ok {
			continue
		}
		if stuck++; stuck == 1 {
			first = Fault{Code: Deadlock, Rank: rank, Position: at[rank].position, Action: a}
		}
		if stuck <= named {
			v.rank = rank
			waits, _ := v.blocked(a)
			fmt.Fprintf(&b, " rank %d stands before action %d, %v, and waits for %v of rank %d;",
				rank, at[rank].position, a, waits, v.c.plan.Placement.Rank[waits.Stage()])
		}
	}
	if stuck == 0 {
		return
	}
	if stuck > named {
		fmt.Fprintf(&b, " so do %d more ranks;", stuck-named)
	}
	first.Text = "No rank can go on:" + b.String() + " move what is waited for before what its rank waits with."
	v.c.add(first)
}
