package hang

import (
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/diagnosis"
)

// Live reports on the ranks of a running job, based on what each of them is doing at one moment.
func Live(ranks []transport.RankStatus) *Report {
	d := diagnosis.Of(ranks)
	r := &Report{Ranks: len(ranks), Verdict: d.Verdict, live: true}
	for _, w := range d.Waits {
		r.Waits = append(r.Waits, Wait{Rank: w.Rank, For: w.For, In: w.In, Certain: w.Certain})
	}
	for _, s := range ranks {
		state := State{Rank: s.Rank, Place: d.Places[s.Rank]}
		if s.Last != 0 {
			state.Last = s.Last.String()
		}
		if s.Action != 0 {
			state.First = s.Action.String()
		}
		r.States = append(r.States, state)
	}
	return r
}
