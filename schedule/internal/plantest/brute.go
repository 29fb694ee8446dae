package plantest

import (
	"fmt"
	"math/rand/v2"

	"github.com/weir-ml/weir/schedule"
)

// Judge returns the fault of a plan of plain lists, or "" for a valid plan. It runs ready
// actions in a random order, with plain maps and lists, and shares no code with Check.
func Judge(p *schedule.Plan, capacity int, rng *rand.Rand) string {
	j := newJudge(p, capacity)
	if fault := j.count(); fault != "" {
		return fault
	}
	for moved := true; moved; {
		moved = false
		for _, rank := range rng.Perm(len(j.lists)) {
			for n := 1 + rng.IntN(3); n > 0 && len(j.lists[rank]) > 0; n-- {
				ran, fault := j.step(rank)
				if fault != "" {
					return fault
				}
				if !ran {
					break
				}
				moved = true
			}
		}
	}
	return j.end()
}

// judge is the state of running a plan.
type judge struct {
	p         *schedule.Plan
	capacity  int
	lists     [][]schedule.Action
	transfers bool
	done      map[schedule.Action]bool
	links     map[[3]int][]schedule.Action // sends, by sending rank, receiving rank and direction
	taken     map[schedule.Action]bool

	// By stage:
	gathered, sharded map[int]bool
	reduces           map[int]bool // the plan has a reduction
	added             map[int]bool // gradients were added since the last reduction
	whole, reducing   map[int]bool // whole gradients are there; they are reduced
	accumulates       bool         // the plan says where whole gradients begin and end
	quantizes         map[int]bool // the stage computes on copies of its weights
}

func newJudge(p *schedule.Plan, capacity int) *judge {
	return &judge{
		p: p, capacity: capacity, lists: Lists(p), done: map[schedule.Action]bool{}, links: map[[3]int][]schedule.Action{}, taken: map[schedule.Action]bool{},
		gathered: map[int]bool{}, sharded: map[int]bool{}, reduces: map[int]bool{}, added: map[int]bool{}, whole: map[int]bool{}, reducing: map[int]bool{}, quantizes: map[int]bool{},
	}
}

// Bare returns the action without drops and join.
func Bare(a schedule.Action) schedule.Action { return a.WithDrop(0).WithJoin(false) }

// The placement, computed independently of package schedule.
func (j *judge) depth() int { return len(j.p.Placement.Rank) / max(1, j.p.Placement.Copies) }

func (j *judge) crosses(stage int) bool { // to the next stage
	return (stage+1)%j.depth() != 0 && j.p.Placement.Rank[stage] != j.p.Placement.Rank[stage+1]
}

func (j *judge) frozen(stage int) bool { return len(j.p.Frozen) > 0 && j.p.Frozen[stage] }

func (j *judge) backward(stage int) bool {
	for s := stage - stage%j.depth(); s <= stage; s++ {
		if j.p.Mode == schedule.Training && !j.frozen(s) {
			return true
		}
	}
	return false
}

// passes reports whether the microbatch runs through the stage.
func (j *judge) passes(stage, mb int) bool {
	copies := max(1, j.p.Placement.Copies)
	of, end := 0, 0
	for c := range copies {
		end += j.p.Microbatches / copies
		if c < j.p.Microbatches%copies {
			end++
		}
		if mb < end {
			of = c
			break
		}
	}
	return mb < j.p.Microbatches && stage/j.depth() == of
}

// used reports whether any microbatch runs through the stage.
func (j *judge) used(stage int) bool {
	for mb := range j.p.Microbatches {
		if j.passes(stage, mb) {
			return true
		}
	}
	return false
}

// count compares the actions of the plan with those that it must have.
func (j *judge) count() string {
	n := map[schedule.Action]int{}
	for rank, list := range j.lists {
		for i, a := range list {
			stage, kind, mb := a.Stage(), a.Kind(), a.Microbatch()
			alone := !ofMicrobatch(a)
			switch {
			case stage >= len(j.p.Placement.Rank), !alone && !j.passes(stage, mb), alone && mb != 0, kind > schedule.WaitB && !alone, kind == schedule.None:
				return fmt.Sprint(a, " is nothing")
			case j.p.Placement.Rank[stage] != rank:
				return fmt.Sprint(a, " is on the wrong rank")
			case a.Joined() && (i+1 == len(list) || list[i+1].Joined() || !kind.Compute() || !list[i+1].Kind().Compute()):
				return fmt.Sprint(a, " is joined with nothing")
			}
			switch kind {
			case schedule.SendF, schedule.RecvF, schedule.SendB, schedule.RecvB:
				j.transfers = true
			case schedule.Unshard, schedule.Reshard:
				j.sharded[stage] = true
			case schedule.ReduceGrad:
				j.reduces[stage] = true
			case schedule.ZeroGrad, schedule.WaitReduce:
				j.accumulates = true
				if !j.backward(stage) || j.frozen(stage) {
					return fmt.Sprint(a, " of a stage without gradients")
				}
			case schedule.Quantize:
				j.quantizes[stage] = true
			}
			n[Bare(a)]++
		}
	}
	for stage := range j.p.Placement.Rank {
		if n[schedule.Act(schedule.Quantize, stage, 0)] > 1 {
			return fmt.Sprint("stage ", stage, " makes copies of its weights again")
		}
		if (j.accumulates || len(j.reduces) > 0) && j.reduces[stage] != (j.used(stage) && j.backward(stage) && !j.frozen(stage)) {
			return fmt.Sprint("reductions of stage ", stage)
		}
		for mb := range j.p.Microbatches {
			if !j.passes(stage, mb) {
				continue
			}
			of := func(kind schedule.Kind) int { return n[schedule.Act(kind, stage, mb)] }
			back := [3]int{of(schedule.B), of(schedule.I), of(schedule.W)}
			ok := of(schedule.F) == 1
			switch {
			case !j.backward(stage):
				ok = ok && back == [3]int{}
			case j.frozen(stage):
				ok = ok && back == [3]int{0, 1, 0}
			default:
				ok = ok && (back == [3]int{1, 0, 0} || back == [3]int{0, 1, 1})
			}
			one := func(yes bool) int {
				if yes && j.transfers {
					return 1
				}
				return 0
			}
			out, in := j.crosses(stage), stage > 0 && j.crosses(stage-1)
			returns := stage > 0 && in && j.backward(stage-1)
			ok = ok && of(schedule.SendF) == one(out) && of(schedule.RecvF) == one(in)
			ok = ok && of(schedule.SendB) == one(returns) && of(schedule.RecvB) == one(out && j.backward(stage))
			ok = ok && of(schedule.WaitF) <= one(out) && of(schedule.WaitB) <= one(returns)
			if !ok {
				return fmt.Sprint("the actions of stage ", stage, " and microbatch ", mb)
			}
		}
	}
	return ""
}

// has reports whether the first of these kinds that the plan has for a stage and a
// microbatch is done.
func (j *judge) has(stage, mb int, kinds ...schedule.Kind) bool {
	for _, k := range kinds {
		if j.done[schedule.Act(k, stage, mb)] {
			return true
		}
	}
	return false
}

// step runs the next action or pair of a rank if it can. It returns the fault of a broken
// rule.
func (j *judge) step(rank int) (ran bool, fault string) {
	list := j.lists[rank]
	n := 1
	if list[0].Joined() {
		n = 2
	}
	for _, a := range list[:n] {
		switch blocked, broken := j.look(rank, a); {
		case broken:
			return false, fmt.Sprint(a, " comes before what it needs")
		case blocked:
			return false, ""
		}
	}
	if n == 2 && list[0].Stage() == list[1].Stage() && list[0].Microbatch() == list[1].Microbatch() {
		return false, fmt.Sprint(list[0], " is joined with its own")
	}
	for _, a := range list[:n] {
		if fault := j.run(a); fault != "" {
			return false, fault
		}
	}
	j.lists[rank] = list[n:]
	return true, ""
}

// look reports whether an action has to wait for another rank, or comes too early on its own
// rank.
func (j *judge) look(rank int, a schedule.Action) (blocked, broken bool) {
	stage, mb, kind := a.Stage(), a.Microbatch(), a.Kind()
	k := max(1, j.p.Slices)
	need := func(local bool, stage, mb int, kinds ...schedule.Kind) {
		if !j.has(stage, mb, kinds...) {
			blocked, broken = blocked || !local, broken || local
		}
	}
	first, last := stage%j.depth() == 0, (stage+1)%j.depth() == 0
	switch kind {
	case schedule.F:
		switch {
		case first:
		case j.crosses(stage-1) && j.transfers:
			need(true, stage, mb, schedule.RecvF)
		default:
			need(!j.crosses(stage-1), stage-1, mb, schedule.F)
		}
		if mb%k != 0 && j.passes(stage, mb-1) {
			need(true, stage, mb-1, schedule.F)
		}
	case schedule.B, schedule.I:
		need(true, stage, mb, schedule.F)
		switch {
		case last:
		case j.crosses(stage) && j.transfers:
			need(true, stage, mb, schedule.RecvB)
		default:
			need(!j.crosses(stage), stage+1, mb, schedule.B, schedule.I)
		}
		if (mb+1)%k != 0 && j.passes(stage, mb+1) {
			need(true, stage, mb+1, schedule.B, schedule.I)
		}
	case schedule.W:
		need(true, stage, mb, schedule.I)
	case schedule.SendF:
		need(true, stage, mb, schedule.F)
	case schedule.SendB:
		need(true, stage, mb, schedule.B, schedule.I)
	case schedule.WaitF:
		need(true, stage, mb, schedule.SendF)
		blocked = blocked || !j.taken[schedule.Act(schedule.SendF, stage, mb)]
	case schedule.WaitB:
		need(true, stage, mb, schedule.SendB)
		blocked = blocked || !j.taken[schedule.Act(schedule.SendB, stage, mb)]
	}
	switch kind {
	case schedule.SendF, schedule.SendB:
		link := j.link(a)
		switch {
		case j.capacity == 0: // the receiver must be at a receive of this link
			other := j.lists[link[1]]
			blocked = blocked || len(other) == 0 || !isReceive(other[0]) || j.link(other[0]) != link
		case j.capacity > 0:
			blocked = blocked || len(j.links[link]) >= j.capacity
		}
	case schedule.RecvF, schedule.RecvB:
		blocked = blocked || j.capacity == 0 || len(j.links[j.link(a)]) == 0
	}
	return blocked, broken
}

func isReceive(a schedule.Action) bool {
	return a.Kind() == schedule.RecvF || a.Kind() == schedule.RecvB
}

// link returns the link of a send or a receive.
func (j *judge) link(a schedule.Action) [3]int {
	rank := j.p.Placement.Rank
	switch s := a.Stage(); a.Kind() {
	case schedule.SendF:
		return [3]int{rank[s], rank[s+1], 0}
	case schedule.RecvF:
		return [3]int{rank[s-1], rank[s], 0}
	case schedule.SendB:
		return [3]int{rank[s], rank[s-1], 1}
	}
	return [3]int{rank[a.Stage()+1], rank[a.Stage()], 1}
}

// origin returns the send that matches a receive.
func origin(a schedule.Action) schedule.Action {
	if a.Kind() == schedule.RecvF {
		return schedule.Act(schedule.SendF, a.Stage()-1, a.Microbatch())
	}
	return schedule.Act(schedule.SendB, a.Stage()+1, a.Microbatch())
}

// run runs an action that is ready.
func (j *judge) run(a schedule.Action) string {
	stage, kind := a.Stage(), a.Kind()
	a = Bare(a)
	switch kind {
	case schedule.SendF, schedule.SendB:
		link := j.link(a)
		if j.capacity == 0 {
			receive := Bare(j.lists[link[1]][0])
			if origin(receive) != a {
				return fmt.Sprint(receive, " meets ", a)
			}
			j.taken[a] = true
			j.done[receive] = true
			j.lists[link[1]] = j.lists[link[1]][1:]
		} else {
			j.links[link] = append(j.links[link], a)
		}
	case schedule.RecvF, schedule.RecvB:
		link := j.link(a)
		got := j.links[link][0]
		j.links[link] = j.links[link][1:]
		if got != origin(a) {
			return fmt.Sprint(a, " gets ", got)
		}
		j.taken[got] = true
	case schedule.Unshard, schedule.Reshard:
		if j.gathered[stage] == (kind == schedule.Unshard) {
			return fmt.Sprint(a, " changes nothing")
		}
		j.gathered[stage] = kind == schedule.Unshard
	case schedule.ReduceGrad:
		if !j.added[stage] {
			return fmt.Sprint(a, " reduces nothing")
		}
		j.added[stage] = false
		j.reducing[stage] = true
	case schedule.ZeroGrad:
		if j.whole[stage] {
			return fmt.Sprint(a, " makes gradients again")
		}
		j.whole[stage] = true
	case schedule.WaitReduce:
		if !j.reducing[stage] {
			return fmt.Sprint(a, " waits for nothing")
		}
		j.whole[stage], j.reducing[stage] = false, false
	default:
		if kind == schedule.F && j.quantizes[stage] && !j.done[schedule.Act(schedule.Quantize, stage, 0)] {
			return fmt.Sprint(a, " has no copies of weights")
		}
		if (kind.Compute() || kind == schedule.Quantize) && j.sharded[stage] && !j.gathered[stage] {
			return fmt.Sprint(a, " has no weights")
		}
		if kind == schedule.B || kind == schedule.W {
			if j.accumulates && (!j.whole[stage] || j.reducing[stage]) {
				return fmt.Sprint(a, " has no gradients to add to")
			}
			j.added[stage] = true
		}
	}
	j.done[a] = true
	return ""
}

// end returns what remains when nothing is ready.
func (j *judge) end() string {
	for rank, list := range j.lists {
		if len(list) > 0 {
			return fmt.Sprint("rank ", rank, " waits before ", list[0])
		}
	}
	for stage := range j.p.Placement.Rank {
		if j.gathered[stage] || j.reduces[stage] && j.added[stage] || j.whole[stage] {
			return fmt.Sprint("stage ", stage, " is left open")
		}
	}
	return ""
}
