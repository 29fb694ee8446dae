package hang

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// everyRank is the rank that a rank waits for which waits for all others.
const everyRank = -1

// Live reports on the ranks of a running job, by what each of them does at a moment. A rank of a
// job that is well may wait too: the report says for whom, not that anything is wrong.
func Live(ranks []transport.Standing) *Report {
	r := &Report{Ranks: len(ranks), live: true}
	of := map[int]transport.Standing{}
	for _, s := range ranks {
		of[s.Rank] = s
		if !s.Waits {
			continue
		}
		in := "the end of the step"
		if s.For.Kind() != schedule.None {
			in = s.For.String()
		}
		for _, other := range ranks {
			late := s.ForRank == everyRank && !(other.Waits && other.ForRank == everyRank)
			if other.Rank != s.Rank && (late || other.Rank == s.ForRank) {
				r.Waits = append(r.Waits, Wait{Rank: s.Rank, For: other.Rank, In: in, Certain: true})
			}
		}
	}
	g := graph(r.Waits)
	for _, end := range g.ends() {
		reason := Reason{Ranks: end, Circle: len(end) > 1, Certain: true, Text: "is outside of its program"}
		switch a := of[end[0]].Action; {
		case reason.Circle:
			reason.Text = "wait for each other"
		case a.Kind() != schedule.None:
			reason.Text = fmt.Sprintf("runs %v", a)
		}
		r.Reasons = append(r.Reasons, reason)
	}
	r.judge(&g)
	return r
}
