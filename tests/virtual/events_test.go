package virtual_test

import (
	"time"

	"github.com/weir-ml/weir/schedule"
)

// naive runs the programs of all ranks in the simplest way: each rank in turn advances as long
// as its dependencies have times. It returns the start of the first computation and the end of
// the last one by rank.
func naive(programs [][]schedule.Action, place schedule.Placement, p *prices, capacity int) (first, last []time.Duration) {
	type link struct {
		from, to int
		backward bool
	}
	type message struct{ sent, received time.Duration } // -1: not yet
	type key struct {
		kind      schedule.Kind // of the send
		stage, mb int
	}
	ranks, of := place.Ranks, place.Rank
	var (
		clock    = make([]time.Duration, ranks)
		at       = make([]int, ranks)
		links    = map[link][]*message{}
		messages = map[key]*message{}
		ready    = map[key]time.Duration{} // sends that wait for a rendezvous
	)
	first, last = make([]time.Duration, ranks), make([]time.Duration, ranks)
	for rank := range programs {
		first[rank] = -1
	}
	step := func(rank int) bool {
		if at[rank] == len(programs[rank]) {
			return false
		}
		a := programs[rank][at[rank]]
		stage, mb := a.Stage(), a.Microbatch()
		switch a.Kind() {
		case schedule.SendF, schedule.SendB:
			to := link{rank, 0, a.Kind() == schedule.SendB}
			if to.to = of[stage+1-2*btoi(to.backward)]; capacity == 0 {
				k := key{a.Kind(), stage, mb}
				if _, waits := ready[k]; !waits {
					ready[k] = clock[rank]
				}
				if messages[k] == nil {
					return false // the receive completes both
				}
				clock[rank] = messages[k].received
				break
			}
			sent := links[to]
			if capacity > 0 && len(sent) >= capacity {
				room := sent[len(sent)-capacity].received
				if room < 0 {
					return false
				}
				clock[rank] = max(clock[rank], room)
			}
			m := &message{clock[rank], -1}
			links[to] = append(sent, m)
			messages[key{a.Kind(), stage, mb}] = m
		case schedule.RecvF, schedule.RecvB:
			k := key{schedule.SendF, stage - 1, mb}
			if a.Kind() == schedule.RecvB {
				k = key{schedule.SendB, stage + 1, mb}
			}
			if capacity == 0 {
				sent, waits := ready[k]
				if !waits {
					return false
				}
				messages[k] = &message{max(sent, clock[rank]), max(sent, clock[rank])}
			}
			m := messages[k]
			if m == nil {
				return false
			}
			clock[rank] = max(clock[rank], m.sent)
			m.received = clock[rank]
		case schedule.WaitF, schedule.WaitB:
			kind := schedule.SendF
			if a.Kind() == schedule.WaitB {
				kind = schedule.SendB
			}
			m := messages[key{kind, stage, mb}]
			if m.received < 0 {
				return false
			}
			clock[rank] = max(clock[rank], m.received)
		default:
			if first[rank] < 0 {
				first[rank] = clock[rank]
			}
			clock[rank] += p.action(a)
			last[rank] = clock[rank]
		}
		at[rank]++
		return true
	}
	for moved := true; moved; {
		moved = false
		for rank := range programs {
			for step(rank) {
				moved = true
			}
		}
	}
	for rank := range programs {
		if at[rank] < len(programs[rank]) {
			panic("the naive simulation is stuck: " + programs[rank][at[rank]].String())
		}
	}
	return first, last
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
