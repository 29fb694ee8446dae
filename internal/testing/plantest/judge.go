package plantest

import (
	"fmt"
	"math/rand/v2"

	"github.com/weir-ml/weir/schedule"
)

// Judge returns the first fault of a plan without repeats, or "" if the plan is valid. It runs actions
// in a random order and stores its state in maps and lists. It shares no code with package check.
func Judge(p *schedule.Plan, capacity int, rng *rand.Rand) string {
	j := newJudge(p, capacity)
	if fault := j.missing(); fault != "" {
		return fault
	}
	j.posts = p.Runtime.Posts() && j.transfers && capacity == schedule.Unlimited
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
	return j.remaining()
}

// judge holds the state of one run of a plan.
type judge struct {
	p         *schedule.Plan
	capacity  int
	lists     [][]schedule.Action
	transfers bool
	done      map[schedule.Action]bool
	links     map[[3]int][]schedule.Action // sends in flight, by sender, receiver and direction
	taken     map[schedule.Action]bool
	posts     bool                         // a rank does not wait at a transfer
	posted    map[string][]schedule.Action // by link and end: the posted transfers
	queues    map[[4]int][]schedule.Action // by the key that queue returns: the posted transfers that are not complete

	// By stage:
	gathered, sharded        map[int]bool
	reduces                  map[int]bool // the plan has a reduction
	unreduced                map[int]bool // gradients have been added since the last reduction
	wholeGradients, reducing map[int]bool // the stage has whole gradients, and their reduction has started
	accumulates              bool         // the plan has ZERO_GRAD
	retires                  bool         // the plan is for PyTorch and has waits, so everything is waited for
	quantizes                map[int]bool // the stage has copies of its weights
}

func newJudge(p *schedule.Plan, capacity int) *judge {
	return &judge{
		p: p, capacity: capacity, lists: Lists(p), done: map[schedule.Action]bool{}, links: map[[3]int][]schedule.Action{}, posted: map[string][]schedule.Action{}, queues: map[[4]int][]schedule.Action{}, taken: map[schedule.Action]bool{},
		gathered: map[int]bool{}, sharded: map[int]bool{}, reduces: map[int]bool{}, unreduced: map[int]bool{}, wholeGradients: map[int]bool{}, reducing: map[int]bool{}, quantizes: map[int]bool{},
	}
}

// Bare returns the action without drops and join.
func Bare(a schedule.Action) schedule.Action { return a.WithDrop(0).WithJoin(false) }

// crosses reports whether the edge to the next stage leads to another rank.
func (j *judge) crosses(stage int) bool {
	return (stage+1)%depth(j.p) != 0 && j.p.Placement.Rank[stage] != j.p.Placement.Rank[stage+1]
}

// used reports whether any microbatch runs through the stage.
func (j *judge) used(stage int) bool {
	for mb := range j.p.Microbatches {
		if passes(j.p, stage, mb) {
			return true
		}
	}
	return false
}

// missing compares the actions of the plan with the required ones, and returns the first difference.
func (j *judge) missing() string {
	n, reduces := map[schedule.Action]int{}, false
	for rank, list := range j.lists {
		for i, a := range list {
			stage, kind, mb := a.Stage(), a.Kind(), a.Microbatch()
			alone := !ofMicrobatch(a)
			switch {
			case stage >= len(j.p.Placement.Rank), !alone && !passes(j.p, stage, mb), alone && mb != 0, kind > schedule.WaitB && !alone, kind == schedule.None:
				return fmt.Sprint(a, " does not exist")
			case j.p.Placement.Rank[stage] != rank:
				return fmt.Sprint(a, " is on the wrong rank")
			case a.Joined() && (i+1 == len(list) || list[i+1].Joined() || !kind.Compute() || !list[i+1].Kind().Compute()):
				return fmt.Sprint(a, " is joined without a partner")
			}
			j.retires = j.retires || j.p.Runtime.Posts() && (kind == schedule.WaitF || kind == schedule.WaitB || kind == schedule.WaitReduce)
			reduces = reduces || kind == schedule.ReduceGrad || kind == schedule.ZeroGrad || kind == schedule.WaitReduce
			switch kind {
			case schedule.SendF, schedule.RecvF, schedule.SendB, schedule.RecvB:
				j.transfers = true
			case schedule.Unshard, schedule.Reshard:
				j.sharded[stage] = true
			case schedule.ReduceGrad:
				j.reduces[stage] = true
			case schedule.ZeroGrad, schedule.WaitReduce:
				j.accumulates = j.accumulates || kind == schedule.ZeroGrad
				if !backward(j.p, stage) || frozen(j.p, stage) {
					return fmt.Sprint(a, " of a stage without gradients")
				}
			case schedule.Quantize:
				j.quantizes[stage] = true
			}
			n[Bare(a)]++
		}
	}
	for stage := range j.p.Placement.Rank {
		if n[schedule.NewAction(schedule.Quantize, stage, 0)] > 1 {
			return fmt.Sprint("stage ", stage, " makes copies of its weights again")
		}
		if reduces && j.reduces[stage] != (j.used(stage) && backward(j.p, stage) && !frozen(j.p, stage)) {
			return fmt.Sprint("reductions of stage ", stage)
		}
		for mb := range j.p.Microbatches {
			if !passes(j.p, stage, mb) {
				continue
			}
			of := func(kind schedule.Kind) int { return n[schedule.NewAction(kind, stage, mb)] }
			back := [3]int{of(schedule.B), of(schedule.I), of(schedule.W)}
			ok := of(schedule.F) == 1
			switch {
			case !backward(j.p, stage):
				ok = ok && back == [3]int{}
			case frozen(j.p, stage):
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
			returns := stage > 0 && in && backward(j.p, stage-1)
			ok = ok && of(schedule.SendF) == one(out) && of(schedule.RecvF) == one(in)
			ok = ok && of(schedule.SendB) == one(returns) && of(schedule.RecvB) == one(out && backward(j.p, stage))
			ok = ok && of(schedule.WaitF) <= one(out) && of(schedule.WaitB) <= one(returns)
			ok = ok && (!j.retires || of(schedule.WaitF) == of(schedule.SendF) && of(schedule.WaitB) == of(schedule.SendB))
			if !ok {
				return fmt.Sprint("the actions of stage ", stage, " and microbatch ", mb)
			}
		}
	}
	return ""
}

// step runs the next action or joined pair of a rank if it can run. It returns a fault if the plan
// breaks a rule.
func (j *judge) step(rank int) (ran bool, fault string) {
	list := j.lists[rank]
	n := 1
	if list[0].Joined() {
		n = 2
	}
	for _, a := range list[:n] {
		switch blocked, broken := j.readiness(rank, a); {
		case broken:
			return false, fmt.Sprint(a, " precedes an action that it needs")
		case blocked:
			return false, ""
		}
	}
	if n == 2 && list[0].Stage() == list[1].Stage() && list[0].Microbatch() == list[1].Microbatch() {
		return false, fmt.Sprint(list[0], " is joined with an action of its stage and microbatch")
	}
	for _, a := range list[:n] {
		if fault := j.apply(a); fault != "" {
			return false, fault
		}
	}
	j.lists[rank] = list[n:]
	return true, ""
}

// readiness reports whether an action is blocked by another rank, and whether it precedes an action of
// its own rank that it needs.
func (j *judge) readiness(rank int, a schedule.Action) (blocked, broken bool) {
	stage, mb, kind := a.Stage(), a.Microbatch(), a.Kind()
	gradient := func(stage, mb int) schedule.Action {
		if i := schedule.NewAction(schedule.I, stage, mb); j.done[i] {
			return i
		}
		return schedule.NewAction(schedule.B, stage, mb)
	}
	for _, need := range Needs(j.p, a, gradient) {
		local := j.p.Placement.Rank[need.Stage()] == rank
		if !local && j.transfers { // a receive on this rank brings the result
			local = true
			if need = schedule.NewAction(schedule.RecvB, stage, mb); kind == schedule.F {
				need = schedule.NewAction(schedule.RecvF, stage, mb)
			}
		}
		if !j.done[need] {
			blocked, broken = blocked || !local, broken || local
		}
	}
	if j.posts {
		wanted := a
		switch {
		case kind == schedule.F && stage > 0 && j.crosses(stage-1):
			wanted = schedule.NewAction(schedule.SendF, stage-1, mb)
		case (kind == schedule.B || kind == schedule.I) && j.crosses(stage):
			wanted = schedule.NewAction(schedule.SendB, stage+1, mb)
		case kind == schedule.WaitF:
			wanted = schedule.NewAction(schedule.SendF, stage, mb)
		case kind == schedule.WaitB:
			wanted = schedule.NewAction(schedule.SendB, stage, mb)
		}
		return blocked || wanted != a && !j.taken[wanted], broken
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
	case schedule.WaitF:
		blocked = blocked || !j.taken[schedule.NewAction(schedule.SendF, stage, mb)]
	case schedule.WaitB:
		blocked = blocked || !j.taken[schedule.NewAction(schedule.SendB, stage, mb)]
	}
	return blocked, broken
}

func isReceive(a schedule.Action) bool {
	return a.Kind() == schedule.RecvF || a.Kind() == schedule.RecvB
}

// link returns the link of a send or a receive. PyTorch sends outputs and gradients over one link, unless each
// direction has a communicator.
func (j *judge) link(a schedule.Action) (link [3]int) {
	rank := j.p.Placement.Rank
	switch s := a.Stage(); a.Kind() {
	case schedule.SendF:
		link = [3]int{rank[s], rank[s+1], 0}
	case schedule.RecvF:
		link = [3]int{rank[s-1], rank[s], 0}
	case schedule.SendB:
		link = [3]int{rank[s], rank[s-1], 1}
	case schedule.RecvB:
		link = [3]int{rank[s+1], rank[s], 1}
	}
	if j.p.Runtime.Posts() && j.p.Runtime != schedule.PyTorch214Direction {
		link[2] = 0
	}
	return link
}

// sendOf returns the send that matches a receive.
func sendOf(a schedule.Action) schedule.Action {
	if a.Kind() == schedule.RecvF {
		return schedule.NewAction(schedule.SendF, a.Stage()-1, a.Microbatch())
	}
	return schedule.NewAction(schedule.SendB, a.Stage()+1, a.Microbatch())
}

// queue returns the key of the queue that a transfer waits in.
func (j *judge) queue(a schedule.Action) (queue [4]int) {
	link, end := j.link(a), 0
	if isReceive(a) {
		end = 1
	}
	queue[0] = link[end]
	switch j.p.Runtime {
	case schedule.PyTorch214, schedule.PyTorch215Lazy:
		queue[1] = link[1-end]
	case schedule.PyTorch214Direction:
		if a.Kind() == schedule.SendB || a.Kind() == schedule.RecvB {
			queue[1] = 1
		}
	case schedule.PyTorch, schedule.PyTorch215Edge:
		queue[1], queue[2] = link[1-end], end
	}
	return queue
}

// post posts a transfer, and completes the transfers whose two ends are the first in their queues.
func (j *judge) post(a schedule.Action) string {
	link := j.link(a)
	ends := [2]string{fmt.Sprint("sends ", link), fmt.Sprint("receives ", link)}
	end := 0
	if isReceive(a) {
		end = 1
	}
	j.posted[ends[end]] = append(j.posted[ends[end]], a)
	if i := len(j.posted[ends[end]]) - 1; i < len(j.posted[ends[1-end]]) {
		send, receive := j.posted[ends[0]][i], j.posted[ends[1]][i]
		if sendOf(receive) != send {
			return fmt.Sprint(receive, " gets ", send)
		}
	}
	j.queues[j.queue(a)] = append(j.queues[j.queue(a)], a)
	for again := true; again; {
		again = false
		for key, list := range j.queues {
			if len(list) == 0 || !isReceive(list[0]) {
				continue
			}
			send := sendOf(list[0])
			other := j.queues[j.queue(send)]
			if len(other) > 0 && other[0] == send {
				j.taken[send], again = true, true
				j.queues[key], j.queues[j.queue(send)] = list[1:], other[1:]
			}
		}
	}
	return ""
}

// apply runs an action that is ready, and returns the fault if it is invalid.
func (j *judge) apply(a schedule.Action) string {
	stage, kind := a.Stage(), a.Kind()
	a = Bare(a)
	if j.posts && kind >= schedule.SendF && kind <= schedule.RecvB {
		j.done[a] = true
		return j.post(a)
	}
	switch kind {
	case schedule.SendF, schedule.SendB:
		link := j.link(a)
		if j.capacity == 0 {
			receive := Bare(j.lists[link[1]][0])
			if sendOf(receive) != a {
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
		if got != sendOf(a) {
			return fmt.Sprint(a, " gets ", got)
		}
		j.taken[got] = true
	case schedule.Unshard, schedule.Reshard:
		if j.gathered[stage] == (kind == schedule.Unshard) {
			return fmt.Sprint(a, " changes nothing")
		}
		j.gathered[stage] = kind == schedule.Unshard
	case schedule.ReduceGrad:
		if !j.unreduced[stage] {
			return fmt.Sprint(a, " reduces nothing")
		}
		for other := range j.p.Placement.Rank {
			if j.retires && j.reducing[other] && j.p.Placement.Rank[other] == j.p.Placement.Rank[stage] {
				return fmt.Sprint(a, " starts a second reduction")
			}
		}
		j.unreduced[stage] = false
		j.reducing[stage] = true
	case schedule.ZeroGrad:
		if j.wholeGradients[stage] {
			return fmt.Sprint(a, " makes gradients again")
		}
		j.wholeGradients[stage] = true
	case schedule.WaitReduce:
		if !j.reducing[stage] {
			return fmt.Sprint(a, " waits for nothing")
		}
		j.wholeGradients[stage], j.reducing[stage] = false, false
	default:
		if kind == schedule.F && j.quantizes[stage] && !j.done[schedule.NewAction(schedule.Quantize, stage, 0)] {
			return fmt.Sprint(a, " has no copies of weights")
		}
		if (kind.Compute() || kind == schedule.Quantize) && j.sharded[stage] && !j.gathered[stage] {
			return fmt.Sprint(a, " has no weights")
		}
		if kind == schedule.B || kind == schedule.W {
			if j.accumulates && !j.wholeGradients[stage] || (j.accumulates || j.retires) && j.reducing[stage] {
				return fmt.Sprint(a, " has no gradients to add to")
			}
			j.unreduced[stage] = true
		}
	}
	j.done[a] = true
	return ""
}

// remaining returns a fault if, at the end of a run, actions remain or something was not released.
func (j *judge) remaining() string {
	for rank, list := range j.lists {
		if len(list) > 0 {
			return fmt.Sprint("rank ", rank, " waits before ", list[0])
		}
	}
	for stage := range j.p.Placement.Rank {
		if j.gathered[stage] || j.reduces[stage] && j.unreduced[stage] || j.wholeGradients[stage] || j.retires && j.reducing[stage] {
			return fmt.Sprint("stage ", stage, " is left open")
		}
	}
	return ""
}
