package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// Waiting is a rank that cannot go on, and the action that it waits for.
type Waiting struct {
	Rank     int
	Position int64           // of Action in the rank's program, from 0, each repeat counted
	Action   schedule.Action // the next action of the rank
	With     schedule.Action // the action that it is joined with, which may be the one that waits; else 0
	For      schedule.Action // the action that it waits for
	ForRank  int             // the rank of that action
}

// FindCycle returns a waiting cycle among all ranks that cannot go on, which may be in any order:
// each rank of it waits for the next one, and the last one for the first, which is the lowest
// rank of the cycle. Of several cycles it returns the one that is reached from the lowest rank. If
// there is none, because some rank waits for one that is not in the list, it returns the path from
// the lowest rank to that one. It returns nil for an empty list.
func FindCycle(waiting []Waiting) []Waiting {
	of := make(map[int]Waiting, len(waiting))
	for _, w := range waiting {
		of[w.Rank] = w
	}
	var open []Waiting
	seen := make(map[int]bool, len(of))
	for _, rank := range slices.Sorted(maps.Keys(of)) {
		var way []Waiting
		at, waits := of[rank]
		for waits && !seen[at.Rank] {
			seen[at.Rank] = true
			way = append(way, at)
			at, waits = of[at.ForRank]
		}
		if from := slices.Index(way, at); from >= 0 && waits {
			return lowestFirst(way[from:])
		}
		if open == nil {
			open = way
		}
	}
	return open
}

// lowestFirst returns a cycle from its lowest rank on.
func lowestFirst(cycle []Waiting) []Waiting {
	lowest := 0
	for i, w := range cycle {
		if w.Rank < cycle[lowest].Rank {
			lowest = i
		}
	}
	return slices.Concat(cycle[lowest:], cycle[:lowest])
}

// maxWaiting is how many ranks DescribeCycle names one by one.
const maxWaiting = 64

// DescribeCycle describes a result of FindCycle in a sentence: which rank waits for which action of
// which other rank, and a change that would end it. It is empty for an empty list.
func DescribeCycle(cycle []Waiting) string {
	if len(cycle) == 0 {
		return ""
	}
	last := cycle[len(cycle)-1]
	var b strings.Builder
	switch {
	case !closed(cycle):
		fmt.Fprintf(&b, "Rank %d waits for what never comes:", cycle[0].Rank)
	case len(cycle) == 1:
		fmt.Fprintf(&b, "Rank %d waits for itself:", last.Rank)
	default:
		fmt.Fprintf(&b, "Ranks %s and %d wait for each other:", ranksOf(cycle[:len(cycle)-1]), last.Rank)
	}
	for i, w := range cycle {
		if i == maxWaiting {
			fmt.Fprintf(&b, " and so on for %d more ranks;", len(cycle)-i)
			break
		}
		fmt.Fprintf(&b, " rank %d stands before action %d, %s, and waits for %v of rank %d;", w.Rank, w.Position, w.at("joined with"), w.For, w.ForRank)
	}
	if closed(cycle) {
		fmt.Fprintf(&b, " %s.", cure(cycle))
	} else {
		fmt.Fprintf(&b, " rank %d comes to its end without it; let it run %v, or take out what waits for it.", last.ForRank, last.For)
	}
	return b.String()
}

// closed reports whether the ranks are a cycle, and not a path.
func closed(cycle []Waiting) bool { return cycle[len(cycle)-1].ForRank == cycle[0].Rank }

// at names the next action of the rank, or the pair.
func (w Waiting) at(and string) string {
	if w.With != 0 {
		return fmt.Sprintf("%v %s %v", w.Action, and, w.With)
	}
	return w.Action.String()
}

// ranksOf lists ranks with commas.
func ranksOf(list []Waiting) string {
	var b strings.Builder
	for i, w := range list {
		switch {
		case i == maxWaiting:
			return b.String() + ", ..."
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, w.Rank)
	}
	return b.String()
}

// cure names a change that would end a cycle. The first of its ranks that can should run the action
// that the rank before waits for earlier than its own next action.
func cure(cycle []Waiting) string {
	before := func(i int) Waiting { return cycle[(i+len(cycle)-1)%len(cycle)] }
	for i, w := range cycle {
		if wanted := before(i).For; w.With != 0 && (wanted == w.Action || wanted == w.With) {
			return fmt.Sprintf("take the join of %s away, since neither of the pair runs before both can", w.at("and"))
		}
	}
	text := "put what is waited for before what its rank waits with"
	for i, w := range cycle {
		if wanted := before(i).For; !follows(wanted, w.Action) {
			text = fmt.Sprintf("put %v, with what it needs, before %s on rank %d", wanted, w.at("and"), w.Rank)
			break
		}
	}
	if slices.ContainsFunc(cycle, func(w Waiting) bool { return w.Action.Kind() == schedule.SendF || w.Action.Kind() == schedule.SendB }) {
		text += ", or let the links hold more messages"
	}
	return text
}

// follows reports whether an action may need another one: it is of the same microbatch, and not
// before it on the way through the model and back. No action needs a wait.
func follows(a, other schedule.Action) bool {
	if kind := other.Kind(); kind == schedule.WaitF || kind == schedule.WaitB {
		return false
	}
	return a.Microbatch() == other.Microbatch() && way(a) >= way(other)
}

// way is how far along its microbatch's way an action is.
func way(a schedule.Action) int {
	p := phase(a.Kind())
	if p < phase(schedule.B) && a.Kind() != schedule.RecvB {
		return 8*a.Stage() + p
	}
	return 8*(2*schedule.MaxStages-a.Stage()) + p
}
