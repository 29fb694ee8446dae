package hang

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-ml/weir/transport"
)

// everyRank stands for the awaited rank if a rank waits for all others.
const everyRank = -1

// silent is the age at which a heartbeat no longer shows what its rank is doing. Ranks send one
// every second.
const silent = 2 * time.Second

// Live reports on the ranks of a running job, based on what each of them is doing at one moment.
// Ranks of a healthy job wait, too: the report says which ranks they wait for and how long, not that
// anything is wrong.
func Live(ranks []transport.Standing) *Report {
	r := &Report{Ranks: len(ranks), live: true}
	byID := map[int]transport.Standing{}
	var oldest time.Duration
	var latest int64
	for _, s := range ranks {
		byID[s.Rank], oldest, latest = s, max(oldest, s.Age), max(latest, s.Step)
	}
	// All ranks begin a step together, so any wait in an earlier step is over.
	waits := func(s transport.Standing) bool { return s.Waits && s.Age < silent && s.Step >= latest }
	for _, s := range ranks {
		state := State{Rank: s.Rank, Place: fmt.Sprintf("step %d", s.Step)}
		if s.Last != 0 {
			state.Last = s.Last.String()
		}
		if s.Action != 0 {
			state.First = s.Action.String()
		}
		if waits(s) {
			state.Place += fmt.Sprintf(", has waited %v", s.Since.Round(time.Millisecond))
			operation := "the end of the step"
			if s.For != 0 {
				operation = fmt.Sprintf("%v, which needs %v", s.Action, s.For)
			}
			for _, other := range ranks {
				late := s.ForRank == everyRank && !(waits(other) && other.ForRank == everyRank)
				if other.Rank != s.Rank && (late || other.Rank == s.ForRank) {
					r.Waits = append(r.Waits, Wait{Rank: s.Rank, For: other.Rank, In: operation, Certain: s.Since >= s.Age})
				}
			}
		}
		r.States = append(r.States, state)
	}
	g := graph(r.Waits)
	for _, end := range g.ends() {
		if len(end) > 1 { // proven if all of them were already waiting when the oldest heartbeat was sent
			over := slices.ContainsFunc(end, func(rank int) bool { return byID[rank].Since+byID[rank].Age < oldest })
			r.Reasons = append(r.Reasons, Reason{Ranks: end, Circle: true, Text: "wait for each other", Certain: !over})
			continue
		}
		s := byID[end[0]]
		var first transport.Standing // the rank that has waited longest for it
		for _, w := range r.Waits {
			if w.For == s.Rank && byID[w.Rank].Since >= first.Since {
				first = byID[w.Rank]
			}
		}
		text := s.Activity()
		current := s.Age < silent && s.Age <= first.Since+first.Age // sent during the wait
		if !current {
			text = fmt.Sprintf("sent its last heartbeat %v ago: %s", s.Age.Round(time.Millisecond), text)
		}
		text += fmt.Sprintf("; rank %d has waited %v for it", first.Rank, first.Since.Round(time.Millisecond))
		r.Reasons = append(r.Reasons, Reason{Ranks: end, Text: text, Certain: current && first.Age <= first.Since})
	}
	r.judge(g)
	return r
}
