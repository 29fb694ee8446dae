package virtual_test

import (
	"time"

	"github.com/weir-ml/weir/schedule"
)

// naive is a simulation in the simplest form: each rank in turn advances as long as its
// dependencies have times.
type naive struct {
	programs [][]schedule.Action
	place    schedule.Placement
	prices   *prices
	capacity int

	clock       []time.Duration // by rank
	position    []int           // by rank
	links       map[link][]*message
	messages    map[transfer]*message
	sends       map[transfer]time.Duration // that have begun, with capacity 0
	first, last []time.Duration            // by rank: the start of the first computation and the end of the last one
}

type link struct {
	from, to int
	backward bool
}

// message has the times at which it was sent and received; -1 means not yet.
type message struct{ sent, received time.Duration }

// transfer is a tensor that a stage sends.
type transfer struct {
	backward  bool
	stage, mb int
}

// simulateNaively returns the start of the first computation and the end of the last one by rank.
func simulateNaively(programs [][]schedule.Action, place schedule.Placement, p *prices, capacity int) (first, last []time.Duration) {
	times := func() []time.Duration { return make([]time.Duration, place.Ranks) }
	n := &naive{
		programs: programs, place: place, prices: p, capacity: capacity,
		clock: times(), position: make([]int, place.Ranks), first: times(), last: times(),
		links: map[link][]*message{}, messages: map[transfer]*message{}, sends: map[transfer]time.Duration{},
	}
	for rank := range programs {
		n.first[rank] = -1
	}
	for moved := true; moved; {
		moved = false
		for rank := range programs {
			for n.step(rank) {
				moved = true
			}
		}
	}
	for rank, at := range n.position {
		if at < len(programs[rank]) {
			panic("the naive simulation is stuck: " + programs[rank][at].String())
		}
	}
	return n.first, n.last
}

// step runs the next action of a rank, and reports whether it could.
func (n *naive) step(rank int) bool {
	if n.position[rank] == len(n.programs[rank]) {
		return false
	}
	a := n.programs[rank][n.position[rank]]
	kind, done := a.Kind(), true
	t := transfer{kind == schedule.SendB || kind == schedule.RecvB || kind == schedule.WaitB, a.Stage(), a.Microbatch()}
	switch kind {
	case schedule.SendF, schedule.SendB:
		done = n.send(rank, t)
	case schedule.RecvF, schedule.RecvB:
		t.stage += direction(!t.backward)
		done = n.receive(rank, t)
	case schedule.WaitF, schedule.WaitB:
		received := n.messages[t].received
		if done = received >= 0; done {
			n.clock[rank] = max(n.clock[rank], received)
		}
	default:
		if n.first[rank] < 0 {
			n.first[rank] = n.clock[rank]
		}
		n.clock[rank] += n.prices.action(a)
		n.last[rank] = n.clock[rank]
	}
	if done {
		n.position[rank]++
	}
	return done
}

// direction returns the distance to the stage that receives a tensor.
func direction(backward bool) int {
	if backward {
		return -1
	}
	return 1
}

func (n *naive) send(rank int, t transfer) bool {
	if n.capacity == 0 {
		if _, begun := n.sends[t]; !begun {
			n.sends[t] = n.clock[rank]
		}
		m := n.messages[t]
		if m != nil { // the receive has completed both
			n.clock[rank] = m.received
		}
		return m != nil
	}
	to := link{rank, n.place.Rank[t.stage+direction(t.backward)], t.backward}
	sent := n.links[to]
	if n.capacity > 0 && len(sent) >= n.capacity {
		room := sent[len(sent)-n.capacity].received
		if room < 0 {
			return false
		}
		n.clock[rank] = max(n.clock[rank], room)
	}
	m := &message{n.clock[rank], -1}
	n.links[to], n.messages[t] = append(sent, m), m
	return true
}

func (n *naive) receive(rank int, t transfer) bool {
	if sent, begun := n.sends[t]; begun { // with capacity 0
		n.messages[t] = &message{max(sent, n.clock[rank]), -1}
	}
	m := n.messages[t]
	if m == nil {
		return false
	}
	n.clock[rank] = max(n.clock[rank], m.sent)
	m.received = n.clock[rank]
	return true
}
