package lower_test

import (
	"fmt"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// message identifies the message of a send and its receive.
type message struct {
	from, to  int           // ranks
	kind      schedule.Kind // of the send
	stage, mb int           // of the send
}

// messageOf returns the message of a transfer.
func messageOf(p *schedule.Plan, a schedule.Action) message {
	kind, stage, to := schedule.SendF, a.Stage(), a.Stage()+1
	switch a.Kind() {
	case schedule.RecvF:
		stage, to = stage-1, stage
	case schedule.SendB, schedule.WaitB:
		kind, to = schedule.SendB, stage-1
	case schedule.RecvB:
		kind, stage, to = schedule.SendB, stage+1, stage
	}
	return message{p.Placement.Rank[stage], p.Placement.Rank[to], kind, stage, a.Microbatch()}
}

// pipe is the state of one link.
type pipe struct {
	sent     []message
	at       []int // the time at which each message was sent
	received []int // the time at which each message was received
}

// carrying executes a plan with transfers in the simplest way, with links that hold up to capacity
// messages. A send blocks while its link is full, or with rendezvous until its receive. A receive
// blocks until its message is sent, and a wait until its message is received. None of them takes
// time.
type carrying struct {
	p        *schedule.Plan
	capacity int
	cost     func(schedule.Action) int
	free     []int // by rank: the end of its last action
	done     map[schedule.Action]bool
	pipes    map[[3]int]*pipe
	place    map[message]int // by sent message: its index in the pipe
}

// carry returns the time at which the last action ends. The error describes an action out of order,
// or the blocked ranks.
func carry(p *schedule.Plan, capacity int, cost func(schedule.Action) int) (end int, err error) {
	c := carrying{p, capacity, cost, make([]int, len(p.Programs)), map[schedule.Action]bool{}, map[[3]int]*pipe{}, map[message]int{}}
	rest, left := plantest.Lists(p), 0
	for _, list := range rest {
		left += len(list)
	}
	for left > 0 {
		before := left
		for rank := range rest {
			for len(rest[rank]) > 0 {
				group := rest[rank][:1]
				if group[0].Joined() {
					group = rest[rank][:2]
				}
				ok, err := c.run(rank, group)
				if err != nil {
					return 0, fmt.Errorf("rank %d: %w", rank, err)
				}
				if !ok {
					break
				}
				for _, a := range group {
					c.done[plantest.Bare(a)] = true
				}
				left -= len(group)
				rest[rank] = rest[rank][len(group):]
			}
			end = max(end, c.free[rank])
		}
		if left == before {
			stuck := ""
			for rank, list := range rest {
				if len(list) > 0 {
					stuck += fmt.Sprintf(" rank %d stands before %v;", rank, list[0])
				}
			}
			return 0, fmt.Errorf("stuck:%s", stuck)
		}
	}
	return end, nil
}

// run runs an action or a joined pair, if the rank can continue.
func (c *carrying) run(rank int, group []schedule.Action) (bool, error) {
	for _, a := range group {
		for _, need := range c.needs(a) {
			if !c.done[need] {
				return false, fmt.Errorf("%v runs before %v", a, need)
			}
		}
	}
	switch a := group[0]; {
	case a.Kind().Compute():
		for _, a := range group {
			c.free[rank] += c.cost(a)
		}
		return true, nil
	case a.Kind() >= schedule.SendF && a.Kind() <= schedule.WaitB:
		return c.transfer(rank, a)
	}
	return true, nil
}

func (c *carrying) transfer(rank int, a schedule.Action) (bool, error) {
	m := messageOf(c.p, a)
	key := [3]int{m.from, m.to, int(m.kind)}
	if c.pipes[key] == nil {
		c.pipes[key] = &pipe{}
	}
	link := c.pipes[key]
	i, sent := c.place[m]
	received := sent && i < len(link.received)
	switch a.Kind() {
	case schedule.SendF, schedule.SendB:
		if full := len(link.sent) - c.capacity; c.capacity > 0 && full >= 0 {
			if full >= len(link.received) {
				return false, nil
			}
			c.free[rank] = max(c.free[rank], link.received[full])
		}
		if !sent {
			c.place[m], link.sent, link.at = len(link.sent), append(link.sent, m), append(link.at, c.free[rank])
		}
		if c.capacity != 0 {
			return true, nil
		}
	case schedule.RecvF, schedule.RecvB:
		i = len(link.received)
		if i == len(link.sent) {
			return false, nil
		}
		if link.sent[i] != m {
			return false, fmt.Errorf("%v gets %v", a, link.sent[i])
		}
		c.free[rank] = max(c.free[rank], link.at[i])
		link.received = append(link.received, c.free[rank])
		return true, nil
	}
	if received {
		c.free[rank] = max(c.free[rank], link.received[i])
	}
	return received, nil
}

// needs returns the dependencies of an action on its own rank.
func (c *carrying) needs(a schedule.Action) (list []schedule.Action) {
	stage, mb, rank := a.Stage(), a.Microbatch(), c.p.Placement.Rank
	backward := func(stage, mb int) schedule.Action {
		if i := schedule.NewAction(schedule.I, stage, mb); c.done[i] {
			return i
		}
		return schedule.NewAction(schedule.B, stage, mb)
	}
	switch a.Kind() {
	case schedule.SendF:
		return []schedule.Action{schedule.NewAction(schedule.F, stage, mb)}
	case schedule.SendB:
		return []schedule.Action{backward(stage, mb)}
	case schedule.WaitF:
		return []schedule.Action{schedule.NewAction(schedule.SendF, stage, mb)}
	case schedule.WaitB:
		return []schedule.Action{schedule.NewAction(schedule.SendB, stage, mb)}
	}
	for _, need := range plantest.Needs(c.p, a, backward) {
		switch s := need.Stage(); {
		case rank[s] == rank[stage]:
			list = append(list, need)
		case s < stage:
			list = append(list, schedule.NewAction(schedule.RecvF, stage, mb))
		default:
			list = append(list, schedule.NewAction(schedule.RecvB, stage, mb))
		}
	}
	return list
}
