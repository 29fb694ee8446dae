package hang

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-ml/weir/transport"
)

// everyRank is the rank that a rank waits for which waits for all others.
const everyRank = -1

// silent is the age from which a heartbeat no longer says what its rank does. Ranks send one each
// second.
const silent = 2 * time.Second

// Live reports on the ranks of a running job, by what each of them does at a moment. A rank of a
// job that is well may wait too: the report says for whom and how long, not that anything is wrong.
func Live(ranks []transport.Standing) *Report {
	r := &Report{Ranks: len(ranks), live: true}
	of := map[int]transport.Standing{}
	var oldest time.Duration
	var latest int64
	for _, s := range ranks {
		of[s.Rank], oldest, latest = s, max(oldest, s.Age), max(latest, s.Step)
	}
	// All ranks begin a step together: a wait of an earlier one is over.
	waits := func(s transport.Standing) bool { return s.Waits && s.Age < silent && s.Step >= latest }
	for _, s := range ranks {
		state := State{Rank: s.Rank, Place: fmt.Sprintf("step %d", s.Step)}
		if waits(s) {
			state.Place += fmt.Sprintf(", has waited %v", s.Since.Round(time.Millisecond))
		}
		if s.Last != 0 {
			state.Last = s.Last.String()
		}
		if s.Action != 0 {
			state.First = s.Action.String()
		}
		r.States = append(r.States, state)
		if !waits(s) {
			continue
		}
		in := "the end of the step"
		if s.For != 0 {
			in = fmt.Sprintf("%v, which needs %v", s.Action, s.For)
		}
		for _, other := range ranks {
			late := s.ForRank == everyRank && !(waits(other) && other.ForRank == everyRank)
			if other.Rank != s.Rank && (late || other.Rank == s.ForRank) {
				r.Waits = append(r.Waits, Wait{Rank: s.Rank, For: other.Rank, In: in, Certain: s.Since >= s.Age})
			}
		}
	}
	g := graph(r.Waits)
	for _, end := range g.ends() {
		s := of[end[0]]
		reason := Reason{Ranks: end, Circle: len(end) > 1, Text: s.Activity()}
		if reason.Circle { // proven if all of them waited when the oldest heartbeat was sent
			reason.Text = "wait for each other"
			reason.Certain = !slices.ContainsFunc(end, func(rank int) bool { return of[rank].Since+of[rank].Age < oldest })
		} else {
			var first transport.Standing // that came to wait for it
			for _, w := range r.Waits {
				if w.For == end[0] && of[w.Rank].Since >= first.Since {
					first = of[w.Rank]
				}
			}
			current := s.Age < silent && s.Age <= first.Since+first.Age // sent during the wait
			if !current {
				reason.Text = fmt.Sprintf("sent its last heartbeat %v ago: %s", s.Age.Round(time.Millisecond), reason.Text)
			}
			reason.Certain = current && first.Age <= first.Since
			reason.Text += fmt.Sprintf("; rank %d has waited %v for it", first.Rank, first.Since.Round(time.Millisecond))
		}
		r.Reasons = append(r.Reasons, reason)
	}
	r.judge(g)
	return r
}
