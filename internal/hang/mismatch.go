package hang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/flightrec"
)

// Finding is something that is wrong between ranks.
type Finding struct {
	Ranks    []int  `json:"ranks"`
	Text     string `json:"text"`
	Mismatch bool   `json:"mismatch"` // of one operation; else a send without a receive
}

// call is an operation of a group as one member has issued it.
type call struct {
	rank int
	*flightrec.Entry
}

// mismatches finds operations that the members of a group have issued with the same number and
// that are not the same, and transfers whose ends differ, among those that are pending.
func (a *analysis) mismatches() (found []Finding) {
	type operation struct {
		group  *group
		number int64
	}
	calls := map[operation][]call{}
	for _, g := range a.groups {
		for _, m := range g.members {
			if m.first >= 0 {
				calls[operation{g, m.first}] = nil
			}
		}
	}
	for _, rank := range a.ranks {
		d := a.dumps[rank]
		if d == nil {
			continue
		}
		for i := range d.Entries {
			e := &d.Entries[i]
			if e.Kind == flightrec.Collective {
				at := operation{a.group(rank, e), e.Number}
				if _, wanted := calls[at]; wanted {
					calls[at] = append(calls[at], call{rank, e})
				}
			}
		}
		found = append(found, a.transfers(rank)...)
	}
	for at, list := range calls {
		if f, differ := compare(at.group, list); differ {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Text, b.Text) })
	return found
}

// compare finds the members whose operation is another one than that of most.
func compare(g *group, list []call) (f Finding, differ bool) {
	count := map[string][]int{}
	for _, c := range list {
		count[signature(c.Entry)] = append(count[signature(c.Entry)], c.rank)
	}
	if len(count) < 2 {
		return f, false
	}
	most := ""
	for _, one := range slices.Sorted(maps.Keys(count)) {
		if len(count[one]) > len(count[most]) {
			most = one
		}
	}
	var words []string
	for _, one := range slices.Sorted(maps.Keys(count)) {
		words = append(words, fmt.Sprintf("%s on %s", one, ranksText(count[one])))
		if one != most || 2*len(count[most]) <= len(list) { // without a majority all of them
			f.Ranks = append(f.Ranks, count[one]...)
		}
	}
	slices.Sort(f.Ranks)
	f.Mismatch = true
	f.Text = fmt.Sprintf("operation %d of %s is %s", list[0].Number, g.name, strings.Join(words, ", and "))
	return f, true
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

// transfers finds what is wrong with the transfers that a rank has not completed.
func (a *analysis) transfers(rank int) (found []Finding) {
	alone := map[int32]int{} // sends without a receive, by peer
	for _, e := range a.stands[rank].pending {
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
	for _, peer := range slices.Sorted(maps.Keys(alone)) {
		found = append(found, Finding{[]int{rank, int(peer)}, fmt.Sprintf("rank %d: %s to rank %d without a receive", rank, plural(alone[peer], "send"), peer), false})
	}
	return found
}
