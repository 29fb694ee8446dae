package hang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule/units"
)

// Finding is a disagreement between ranks.
type Finding struct {
	Ranks    []int  `json:"rank_list"`
	Text     string `json:"text"`
	Mismatch bool   `json:"mismatch"` // ranks disagree about one operation; otherwise, a send has no receive
	certain  bool   // a minority disagrees with the others
	group    *group // of a collective
	number   int64
}

// mismatches finds pending collectives of one number that differ between the members of a group, and pending sends
// that have no receive, or whose receive has another size or type.
func (j *job) mismatches() (found []Finding) {
	type operation struct {
		group  *group
		number int64
	}
	calls := map[operation]map[string][]int{} // the ranks of each signature
	for _, g := range j.groups {
		for _, m := range g.members {
			if m.first >= 0 {
				calls[operation{g, m.first}] = map[string][]int{}
			}
		}
	}
	for _, r := range j.ranks {
		own := map[operation]string{} // the operations of a batch have one number
		for i := range r.dump.Operations {
			e := &r.dump.Operations[i]
			at := operation{r.group(e), e.Number}
			if calls[at] != nil && e.Kind == flightrec.Collective && !at.group.members[r.id].uncounted {
				if own[at] != "" {
					own[at] += " with "
				}
				own[at] += signature(e)
			}
		}
		for at, text := range own {
			calls[at][text] = append(calls[at][text], r.id)
		}
		found = append(found, j.unmatched(r)...)
	}
	for operation, ranks := range calls {
		if len(ranks) > 1 {
			found = append(found, compare(operation.group, operation.number, ranks))
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	return found
}

// compare finds the members whose operation differs from the most frequent one, or all members if
// there is no majority.
func compare(g *group, number int64, ranks map[string][]int) Finding {
	f := Finding{Mismatch: true, group: g, number: number}
	var words []string
	all, most := 0, 0
	for _, some := range ranks {
		all, most = all+len(some), max(most, len(some))
	}
	for _, text := range slices.Sorted(maps.Keys(ranks)) {
		some := ranks[text]
		words = append(words, fmt.Sprintf("%s on %s", text, units.Ranks(some)))
		if 2*most <= all || len(some) < most {
			f.Ranks = append(f.Ranks, some...)
		}
	}
	slices.Sort(f.Ranks)
	f.certain = 2*most > all
	f.Text = fmt.Sprintf("operation %d of %s is %s", number, g.name, strings.Join(words, ", and "))
	return f
}

// signature returns the properties of an operation on which all members must agree. For some operations, each
// rank has its own sizes.
func signature(e *flightrec.Operation) string {
	text := e.Name
	if types := slices.Compact(strings.Split(e.Type, ",")); types[0] != "" { // the root of a scatter has a tensor for each member
		text += " of " + strings.Join(types, ",")
	}
	for _, equal := range []string{"all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "broadcast"} {
		if strings.Contains(e.Name, equal) {
			return text + " " + e.Sizes
		}
	}
	return text
}

// unmatched finds a rank's pending sends that have no receive, or whose receive has another size
// or type.
func (j *job) unmatched(r *rank) (found []Finding) {
	alone := map[int]int{} // sends without a receive, by peer
	for _, e := range r.pending {
		if e.Kind != flightrec.Send || e.Peer < 0 || j.byID[int(e.Peer)].missing {
			continue
		}
		peer := j.byID[int(e.Peer)]
		other := peer.counterpart(r, e)
		switch {
		case other == nil:
			alone[peer.id]++
		case alone[peer.id] == 0 && other.Name != flightrec.Cut && (other.Sizes != e.Sizes || other.Type != e.Type):
			found = append(found, Finding{Ranks: []int{r.id, peer.id}, Text: fmt.Sprintf("rank %d sends %s of %s to rank %d, which receives %s of %s", r.id, e.Sizes, e.Type, peer.id, other.Sizes, other.Type), Mismatch: true})
		}
	}
	for peer, n := range alone {
		found = append(found, Finding{Ranks: []int{r.id, peer}, Text: fmt.Sprintf("rank %d: %s to rank %d without a receive", r.id, units.Number(n, "send"), peer)})
	}
	return found
}
