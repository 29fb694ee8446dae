package plantest

import "fmt"

import "github.com/weir-ml/weir/schedule"

// The judge says whether a plan is valid by running it, in a random order of what can
// run, with plain maps and lists. It knows nothing of how Check does it.
type Judge struct {
	P         *schedule.Plan
	Capacity  int
	Lists     [][]schedule.Action
	transfers bool
	Done      map[schedule.Action]int
	Links     map[[3]int][]schedule.Action // sends, by sending rank, receiving rank and direction
	Gathered  map[int]bool
	Sharded   map[int]bool
	Reduces   map[int]bool // there is a reduction
	Added     map[int]bool // something was added to the gradients since
	Quantizes map[int]bool // it computes on copies of its weights
	Taken     map[schedule.Action]bool
}

// Bare returns the action without drops and join.
func Bare(a schedule.Action) schedule.Action { return a.WithDrop(0).WithJoin(false) }

// The facts of the placement, said anew.
func (j *Judge) depth() int { return len(j.P.Placement.Rank) / max(1, j.P.Placement.Copies) }

func (j *Judge) crosses(stage int) bool { // to the next one
	return (stage+1)%j.depth() != 0 && j.P.Placement.Rank[stage] != j.P.Placement.Rank[stage+1]
}

func (j *Judge) frozen(stage int) bool { return len(j.P.Frozen) > 0 && j.P.Frozen[stage] }

func (j *Judge) backward(stage int) bool {
	for s := stage - stage%j.depth(); s <= stage; s++ {
		if j.P.Mode == schedule.Training && !j.frozen(s) {
			return true
		}
	}
	return false
}

// passes reports whether microbatches run through the stage.
func (j *Judge) passes(stage, mb int) bool {
	copies := max(1, j.P.Placement.Copies)
	of, end := 0, 0
	for c := range copies {
		end += j.P.Microbatches / copies
		if c < j.P.Microbatches%copies {
			end++
		}
		if mb < end {
			of = c
			break
		}
	}
	return mb < j.P.Microbatches && stage/j.depth() == of
}

// used reports whether any microbatch runs through the stage.
func (j *Judge) used(stage int) bool {
	for mb := range j.P.Microbatches {
		if j.passes(stage, mb) {
			return true
		}
	}
	return false
}

// Count compares what there is with what there must be.
func (j *Judge) Count() string {
	n := map[schedule.Action]int{}
	for rank, list := range j.Lists {
		for i, a := range list {
			stage, kind, mb := a.Stage(), a.Kind(), a.Microbatch()
			alone := kind == schedule.Unshard || kind == schedule.Reshard || kind == schedule.ReduceGrad || kind == schedule.Quantize
			switch {
			case stage >= len(j.P.Placement.Rank), !alone && !j.passes(stage, mb), alone && mb != 0, kind > schedule.ReduceGrad && !alone, kind == schedule.None:
				return fmt.Sprint(a, " is nothing")
			case j.P.Placement.Rank[stage] != rank:
				return fmt.Sprint(a, " is on the wrong rank")
			case a.Joined() && (i+1 == len(list) || list[i+1].Joined() || !kind.Compute() || !list[i+1].Kind().Compute()):
				return fmt.Sprint(a, " is joined with nothing")
			}
			switch kind {
			case schedule.SendF, schedule.RecvF, schedule.SendB, schedule.RecvB:
				j.transfers = true
			case schedule.Unshard, schedule.Reshard:
				j.Sharded[stage] = true
			case schedule.ReduceGrad:
				j.Reduces[stage] = true
			case schedule.Quantize:
				j.Quantizes[stage] = true
			}
			n[Bare(a)]++
		}
	}
	for stage := range j.P.Placement.Rank {
		if n[schedule.Act(schedule.Quantize, stage, 0)] > 1 {
			return fmt.Sprint("stage ", stage, " makes copies of its weights again")
		}
		if len(j.Reduces) > 0 && j.Reduces[stage] != (j.used(stage) && j.backward(stage) && !j.frozen(stage)) {
			return fmt.Sprint("reductions of stage ", stage)
		}
		for mb := range j.P.Microbatches {
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

// has reports whether the first of the kinds that the plan has of a stage and a
// microbatch is done.
func (j *Judge) has(stage, mb int, kinds ...schedule.Kind) bool {
	for _, k := range kinds {
		if j.Done[schedule.Act(k, stage, mb)] > 0 {
			return true
		}
	}
	return false
}

// Step runs the next action of a rank, or pair, if it can. The fault says what it
// breaks.
func (j *Judge) Step(rank int) (ran bool, fault string) {
	list := j.Lists[rank]
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
	j.Lists[rank] = list[n:]
	return true, ""
}

// look reports whether an action has to wait for another rank, or comes too early on
// its own.
func (j *Judge) look(rank int, a schedule.Action) (blocked, broken bool) {
	stage, mb, kind := a.Stage(), a.Microbatch(), a.Kind()
	k := max(1, j.P.Slices)
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
		blocked = blocked || !j.Taken[schedule.Act(schedule.SendF, stage, mb)]
	case schedule.WaitB:
		need(true, stage, mb, schedule.SendB)
		blocked = blocked || !j.Taken[schedule.Act(schedule.SendB, stage, mb)]
	}
	switch kind {
	case schedule.SendF, schedule.SendB:
		link := j.link(a)
		switch {
		case j.Capacity == 0: // the receiver must stand before a receive of this link
			other := j.Lists[link[1]]
			blocked = blocked || len(other) == 0 || !isReceive(other[0]) || j.link(other[0]) != link
		case j.Capacity > 0:
			blocked = blocked || len(j.Links[link]) >= j.Capacity
		}
	case schedule.RecvF, schedule.RecvB:
		blocked = blocked || j.Capacity == 0 || len(j.Links[j.link(a)]) == 0
	}
	return blocked, broken
}

func isReceive(a schedule.Action) bool {
	return a.Kind() == schedule.RecvF || a.Kind() == schedule.RecvB
}

// link returns the link of a send or a receive.
func (j *Judge) link(a schedule.Action) [3]int {
	rank := j.P.Placement.Rank
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

// origin returns the send that a receive is for.
func origin(a schedule.Action) schedule.Action {
	if a.Kind() == schedule.RecvF {
		return schedule.Act(schedule.SendF, a.Stage()-1, a.Microbatch())
	}
	return schedule.Act(schedule.SendB, a.Stage()+1, a.Microbatch())
}

// run runs an action that can.
func (j *Judge) run(a schedule.Action) string {
	stage, kind := a.Stage(), a.Kind()
	a = Bare(a)
	switch kind {
	case schedule.SendF, schedule.SendB:
		link := j.link(a)
		if j.Capacity == 0 {
			receive := Bare(j.Lists[link[1]][0])
			if origin(receive) != a {
				return fmt.Sprint(receive, " meets ", a)
			}
			j.Taken[a] = true
			j.Done[receive]++
			j.Lists[link[1]] = j.Lists[link[1]][1:]
		} else {
			j.Links[link] = append(j.Links[link], a)
		}
	case schedule.RecvF, schedule.RecvB:
		link := j.link(a)
		got := j.Links[link][0]
		j.Links[link] = j.Links[link][1:]
		if got != origin(a) {
			return fmt.Sprint(a, " gets ", got)
		}
		j.Taken[got] = true
	case schedule.Unshard, schedule.Reshard:
		if j.Gathered[stage] == (kind == schedule.Unshard) {
			return fmt.Sprint(a, " changes nothing")
		}
		j.Gathered[stage] = kind == schedule.Unshard
	case schedule.ReduceGrad:
		if !j.Added[stage] {
			return fmt.Sprint(a, " reduces nothing")
		}
		j.Added[stage] = false
	default:
		if kind == schedule.F && j.Quantizes[stage] && j.Done[schedule.Act(schedule.Quantize, stage, 0)] == 0 {
			return fmt.Sprint(a, " has no copies of weights")
		}
		if (kind.Compute() || kind == schedule.Quantize) && j.Sharded[stage] && !j.Gathered[stage] {
			return fmt.Sprint(a, " has no weights")
		}
		if kind == schedule.B || kind == schedule.W {
			j.Added[stage] = true
		}
	}
	j.Done[a]++
	return ""
}

// End says what is left where nothing can run.
func (j *Judge) End() string {
	for rank, list := range j.Lists {
		if len(list) > 0 {
			return fmt.Sprint("rank ", rank, " waits before ", list[0])
		}
	}
	for stage := range j.P.Placement.Rank {
		if j.Gathered[stage] || j.Reduces[stage] && j.Added[stage] {
			return fmt.Sprint("stage ", stage, " is left open")
		}
	}
	return ""
}
