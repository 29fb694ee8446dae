package waitgraph

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// ErrDeadlock is matched by errors about ranks that wait for each other forever.
var ErrDeadlock = errors.New("schedule: deadlock")

// Waiting is a rank that cannot continue, and the action for which it waits.
type Waiting struct {
	Rank     int
	Position int64           // of Action in the rank's program, from 0, counting every repeat
	Action   schedule.Action // the next action of the rank
	With     schedule.Action // the action joined with Action, or 0; either of the two may wait
	For      schedule.Action // the action for which the rank waits
	ForRank  int             // the rank of For
	Behind   schedule.Action // the transfer that blocks the queue of Action or of For, or 0
}

// FindCycle returns a waiting cycle among the ranks that cannot continue, which may be listed in any
// order. Each rank in the cycle waits for the next rank, and the last rank waits for the first, which
// is the lowest rank in the cycle. If there are several cycles, FindCycle follows the waits from the
// lowest rank that leads to a cycle. If there is no cycle, because a rank waits for a rank that is not
// in the list, FindCycle returns the path of waiting ranks that starts at the lowest rank. It returns
// nil for an empty list.
func FindCycle(waiting []Waiting) []Waiting {
	byRank := make(map[int]Waiting, len(waiting))
	for _, w := range waiting {
		byRank[w.Rank] = w
	}
	var firstPath []Waiting
	seen := make(map[int]bool, len(byRank))
	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		var path []Waiting
		w, waits := byRank[rank]
		for waits && !seen[w.Rank] {
			seen[w.Rank] = true
			path = append(path, w)
			w, waits = byRank[w.ForRank]
		}
		if first := slices.Index(path, w); first >= 0 && waits {
			return lowestFirst(path[first:])
		}
		if firstPath == nil {
			firstPath = path
		}
	}
	return firstPath
}

// lowestFirst rotates a cycle so that it begins with its lowest rank.
func lowestFirst(cycle []Waiting) []Waiting {
	lowest := 0
	for i, w := range cycle {
		if w.Rank < cycle[lowest].Rank {
			lowest = i
		}
	}
	return slices.Concat(cycle[lowest:], cycle[:lowest])
}

// maxWaiting is the maximum number of ranks that DescribeCycle names one by one.
const maxWaiting = 64

// DescribeCycle describes a result of FindCycle in one sentence: the action for which each rank waits,
// and a change that would resolve the deadlock. It returns "" for an empty list.
func DescribeCycle(cycle []Waiting) string {
	if len(cycle) == 0 {
		return ""
	}
	last := cycle[len(cycle)-1]
	var b strings.Builder
	switch {
	case !IsCycle(cycle):
		fmt.Fprintf(&b, "Rank %d waits for an action that never runs:", cycle[0].Rank)
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
		fmt.Fprintf(&b, " rank %d is at action %d, %s, and waits for %v of rank %d", w.Rank, w.Position, w.actions("joined with"), w.For, w.ForRank)
		if w.Behind != 0 {
			fmt.Fprintf(&b, ", with %v in front in the queue", w.Behind)
		}
		b.WriteByte(';')
	}
	if IsCycle(cycle) {
		fmt.Fprintf(&b, " %s.", remedy(cycle))
	} else {
		fmt.Fprintf(&b, " rank %d ends without running it; add %v to its program, or remove the action that waits for it.", last.ForRank, last.For)
	}
	return b.String()
}

// IsCycle reports whether a result of FindCycle, which is not empty, is a cycle rather than a path.
func IsCycle(cycle []Waiting) bool { return cycle[len(cycle)-1].ForRank == cycle[0].Rank }

// actions formats the next action of the rank, or its joined pair with the given conjunction.
func (w Waiting) actions(and string) string {
	if w.With != 0 {
		return fmt.Sprintf("%v %s %v", w.Action, and, w.With)
	}
	return w.Action.String()
}

// ranksOf lists ranks, separated by commas.
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

// remedy describes a change that would resolve a cycle: a rank in the cycle should run the action that
// the previous rank awaits before its own next action. remedy names the first rank that can do so.
func remedy(cycle []Waiting) string {
	previous := func(i int) Waiting { return cycle[(i+len(cycle)-1)%len(cycle)] }
	for i, w := range cycle {
		if wanted := previous(i).For; w.With != 0 && (wanted == w.Action || wanted == w.With) {
			return fmt.Sprintf("remove the join of %s, because a joined pair starts only when both actions can run", w.actions("and"))
		}
	}
	if i := slices.IndexFunc(cycle, func(w Waiting) bool { return w.Behind != 0 }); i >= 0 {
		return fmt.Sprintf("post what is needed first before %v, or give each direction a queue, as PyTorch's pipeline_per_edge_p2p does", cycle[i].Behind)
	}
	text := "put the awaited action before the action at which its rank waits"
	for i, w := range cycle {
		if wanted := previous(i).For; !follows(wanted, w.Action) {
			text = fmt.Sprintf("put %v, with the actions that it needs, before %s on rank %d", wanted, w.actions("and"), w.Rank)
			break
		}
	}
	if slices.ContainsFunc(cycle, func(w Waiting) bool { return w.Action.Kind() == schedule.SendF || w.Action.Kind() == schedule.SendB }) {
		text += ", or increase the link capacity"
	}
	return text
}

// follows reports whether action a may depend on the other action: both have the same microbatch, and a
// does not come earlier on the path through the model and back. No action depends on a wait.
func follows(a, other schedule.Action) bool {
	if kind := other.Kind(); kind == schedule.WaitF || kind == schedule.WaitB {
		return false
	}
	return a.Microbatch() == other.Microbatch() && pathIndex(a) >= pathIndex(other)
}

// pathIndex returns the position of an action on the path of its microbatch through the model and
// back.
func pathIndex(a schedule.Action) int {
	p := a.Kind().Phase()
	if p < schedule.B.Phase() && a.Kind() != schedule.RecvB {
		return 8*a.Stage() + p
	}
	return 8*(2*schedule.MaxStages-a.Stage()) + p
}
