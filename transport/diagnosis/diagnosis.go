package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-ml/weir/transport"
)

// everyRank is the awaited rank of a rank that waits for all others.
const everyRank = -1

// silent is the age at which a heartbeat no longer shows what its rank is doing. By default, ranks send one
// every second.
const silent = 2 * time.Second

// Diagnosis names the ranks of a running job for which the other ranks wait, based on the action of each
// rank at one moment. Ranks of a healthy job wait, too: a verdict does not mean that anything is wrong.
type Diagnosis struct {
	Verdict
	Waits  []Wait
	Places map[int]string // the progress of each rank, such as "step 9, has waited 5s"
}

// Wait says that one rank waits for another.
type Wait struct {
	Rank, For int
	In        string // the action in which the rank waits and what it needs, or "the end of the step"
	Certain   bool   // whether the wait is at least as long as the age of the heartbeat that reported it
}

// Of diagnoses a job from the statuses of its ranks.
func Of(ranks []transport.RankStatus) *Diagnosis {
	d := &Diagnosis{Places: map[int]string{}}
	byID := map[int]transport.RankStatus{}
	var oldest time.Duration
	var latest int64
	for _, s := range ranks {
		byID[s.Rank], oldest, latest = s, max(oldest, s.Age), max(latest, s.Step)
	}
	// All ranks begin a step together, so any wait in an earlier step is over.
	waits := func(s transport.RankStatus) bool { return s.Waits && s.Age < silent && s.Step >= latest }
	g := Graph{}
	for _, s := range ranks {
		place := fmt.Sprintf("step %d", s.Step)
		if waits(s) {
			place += fmt.Sprintf(", has waited %v", s.Since.Round(time.Millisecond))
			operation := "the end of the step"
			if s.For != 0 {
				operation = fmt.Sprintf("%v, which needs %v", s.Action, s.For)
			}
			for _, other := range ranks {
				late := s.ForRank == everyRank && !(waits(other) && other.ForRank == everyRank)
				if other.Rank != s.Rank && (late || other.Rank == s.ForRank) {
					d.Waits = append(d.Waits, Wait{Rank: s.Rank, For: other.Rank, In: operation, Certain: s.Since >= s.Age})
					g.Add(s.Rank, other.Rank)
				}
			}
		}
		d.Places[s.Rank] = place
	}
	var reasons []Reason
	for _, end := range g.Ends() {
		if len(end) > 1 { // proven if all of them were already waiting when the oldest heartbeat was sent
			over := slices.ContainsFunc(end, func(rank int) bool { return byID[rank].Since+byID[rank].Age < oldest })
			reasons = append(reasons, Reason{Ranks: end, Circle: true, Text: "wait for each other", Certain: !over})
			continue
		}
		s := byID[end[0]]
		var first transport.RankStatus // the rank that has waited longest for it
		for _, w := range d.Waits {
			if w.For == s.Rank && byID[w.Rank].Since >= first.Since {
				first = byID[w.Rank]
			}
		}
		text := s.Activity()
		current := s.Age < silent && s.Age <= first.Since+first.Age // the heartbeat was sent during the wait
		if !current {
			text = fmt.Sprintf("sent its last heartbeat %v ago: %s", s.Age.Round(time.Millisecond), text)
		}
		text += fmt.Sprintf("; rank %d has waited %v for it", first.Rank, first.Since.Round(time.Millisecond))
		reasons = append(reasons, Reason{Ranks: end, Text: text, Certain: current && first.Age <= first.Since})
	}
	d.Verdict = Judge(g, reasons)
	return d
}

// String returns the verdict in two lines, or "" if no rank waits for another one.
func (d *Diagnosis) String() string {
	if len(d.Blamed) == 0 {
		return ""
	}
	return d.Text("waits for none", "wait for none", func(rank int) string { return d.Places[rank] })
}
