package hang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/flightrec"
	"github.com/weir-ml/weir/trainer/units"
)

// Finding is something that is wrong between ranks.
type Finding struct {
	Ranks    []int  `json:"ranks"`
	Text     string `json:"text"`
	Mismatch bool   `json:"mismatch"` // of one operation; else a send without a receive
}

// mismatches finds operations that the members of a group have issued with the same number and
// that are not the same, and transfers whose ends differ, among those that are pending.
func (a *analysis) mismatches() (found []Finding) {
	type operation struct {
		group  *group
		number int64
	}
	calls := map[operation]map[string][]int{} // the ranks of each signature
	for _, g := range a.groups {
		for _, m := range g.members {
			if m.first >= 0 {
				calls[operation{g, m.first}] = map[string][]int{}
			}
		}
	}
	for _, rank := range a.ranks {
		for e := range a.entries(rank) {
			if of := calls[operation{a.group(rank, e), e.Number}]; of != nil && e.Kind == flightrec.Collective {
				text := signature(e)
				of[text] = append(of[text], rank)
			}
		}
		found = append(found, a.unmatched(rank)...)
	}
	for at, ranks := range calls {
		if len(ranks) > 1 {
			found = append(found, compare(at.group, at.number, ranks))
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	return found
}

// compare finds the members whose operation is another one than that of most, or all members if
// there is no majority.
func compare(g *group, number int64, ranks map[string][]int) Finding {
	f := Finding{Mismatch: true}
	var words []string
	all, most := 0, 0
	for _, one := range ranks {
		all, most = all+len(one), max(most, len(one))
	}
	for _, text := range slices.Sorted(maps.Keys(ranks)) {
		one := ranks[text]
		words = append(words, fmt.Sprintf("%s on %s", text, units.Ranks(one)))
		if 2*most <= all || len(one) < most {
			f.Ranks = append(f.Ranks, one...)
		}
	}
	slices.Sort(f.Ranks)
	f.Text = fmt.Sprintf("operation %d of %s is %s", number, g.name, strings.Join(words, ", and "))
	return f
}

// signature is what all members must agree on. The sizes of some operations are each rank's own.
func signature(e *flightrec.Entry) string {
	text := e.Name
	if e.Type != "" {
		text += " of " + e.Type
	}
	for _, equal := range []string{"all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "broadcast"} {
		if strings.Contains(e.Name, equal) {
			return text + " " + e.Sizes
		}
	}
	return text
}

// unmatched finds pending sends of a rank without a receive, or with one of another size or type.
func (a *analysis) unmatched(rank int) (found []Finding) {
	alone := map[int32]int{} // sends without a receive, by peer
	for _, e := range a.stuck[rank].pending {
		if e.Kind != flightrec.Send || a.dumps[int(e.Peer)] == nil {
			continue
		}
		other := a.counterpart(rank, e)
		switch {
		case other == nil:
			alone[e.Peer]++
		case alone[e.Peer] == 0 && (other.Sizes != e.Sizes || other.Type != e.Type):
			found = append(found, Finding{[]int{rank, int(e.Peer)}, fmt.Sprintf("rank %d sends %s of %s to rank %d, which receives %s of %s", rank, e.Sizes, e.Type, e.Peer, other.Sizes, other.Type), true})
		}
	}
	for peer, n := range alone {
		found = append(found, Finding{[]int{rank, int(peer)}, fmt.Sprintf("rank %d: %s to rank %d without a receive", rank, units.Number(n, "send"), peer), false})
	}
	return found
}
