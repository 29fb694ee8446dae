package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/flightrec"
)

// reason says why the ranks at the end of all waits are to blame: one that waits for none,
// or several that wait for each other.
func (a *analysis) reason(end []int) Reason {
	if len(end) > 1 {
		return a.circle(end)
	}
	rank := end[0]
	s, d := a.stands[rank], a.dumps[rank]
	one := Reason{Ranks: end}
	awaited, proven := a.awaited(rank)
	switch {
	case d == nil:
		one.Text = "left no dump"
		for _, b := range a.set.Broken {
			if b.Rank == rank {
				one.Text = "left a dump that cannot be read (" + b.Err.Error() + ")"
			}
		}
	case len(d.Entries) == 0:
		one.Text = "left a dump without a pending operation"
	case s.overtaken && s.Kind == flightrec.Recv:
		one.Text, one.Certain = fmt.Sprintf("is in %s of %s, which rank %d has completed its send for", describe(s.Entry), s.group.name, s.Peer), true
		return one
	case s.overtaken:
		one.Text, one.Certain = fmt.Sprintf("is in %s of %s, which other members have completed", describe(s.Entry), s.group.name), true
		return one
	case s.Entry != nil:
		one.Text, one.Certain = fmt.Sprintf("is in %s of %s, and waits for no rank there", describe(s.Entry), s.group.name), true
	case len(s.pending) > 0:
		one.Text, one.Certain = "has nothing pending that holds it up at its place in the plan", true
	default:
		one.Text, one.Certain = "has completed all that it issued, at last "+a.last(rank), true
	}
	one.Certain = one.Certain && proven
	if awaited != "" {
		one.Text += ", and has not issued " + awaited
	}
	return one
}

// awaited names what a rank has not issued and another one waits for, and reports whether the
// dumps prove it.
func (a *analysis) awaited(rank int) (text string, proven bool) {
	proven = true
	for _, w := range a.r.Waits {
		if w.For != rank {
			continue
		}
		if text == "" || w.Certain && !proven {
			text, proven = a.otherEnd(w), w.Certain
		}
	}
	return text, proven
}

// otherEnd names the operation that would end a wait.
func (a *analysis) otherEnd(w Wait) string {
	e := a.stands[w.Rank].Entry
	switch e.Kind {
	case flightrec.Send:
		return fmt.Sprintf("the recv that rank %d sends to", w.Rank)
	case flightrec.Recv:
		return fmt.Sprintf("the send that rank %d waits for", w.Rank)
	}
	return fmt.Sprintf("%s of %s, which rank %d waits in", w.In, w.Group, w.Rank)
}

// circle says which ranks of a circle are to blame: those whose operation does not match, those
// at a link that does not carry, else the rank that was silent first.
func (a *analysis) circle(ranks []int) Reason {
	for _, f := range a.r.Findings {
		if f.Mismatch && !slices.ContainsFunc(f.Ranks, func(rank int) bool { return !slices.Contains(ranks, rank) }) {
			return Reason{Ranks: f.Ranks, Circle: true, Text: f.Text, Certain: true}
		}
	}
	all := true
	for _, rank := range ranks {
		all = all && a.stands[rank].matched
	}
	first := a.stands[ranks[0]]
	switch {
	case all && first.Kind == flightrec.Collective:
		return Reason{Ranks: ranks, Circle: true, Text: fmt.Sprintf("are all in %s of %s, which does not end: look at what connects them, and at their devices", describe(first.Entry), first.group.name)}
	case all && len(ranks) == 2:
		return Reason{Ranks: ranks, Circle: true, Text: "have issued both ends of a transfer between them, which does not end: look at the link between them"}
	}
	departed := slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool { p := a.placeOf(rank); return p == nil || !p.Departs })
	if len(departed) > 0 {
		return Reason{Ranks: departed, Circle: true, Certain: true, Text: "issued transfers in another order than the plan, so that " + ranksText(ranks) + " wait for each other"}
	}
	var way []string
	for _, rank := range ranks[:min(len(ranks), 4)] {
		way = append(way, fmt.Sprintf("rank %d is in %s", rank, a.stands[rank].waits[0].In))
	}
	text := "wait for each other: " + strings.Join(way, ", ")
	if odd := a.odd(ranks); len(odd) > 0 {
		return Reason{Ranks: odd, Circle: true, Text: fmt.Sprintf("issued transfers in another order than the ranks in the same place of the groups beside; %s %s", ranksText(ranks), text)}
	}
	return Reason{Ranks: ranks, Circle: true, Text: text + ": one of them issues its transfers in the wrong order"}
}

// placeOf returns the place of a rank in the plan, nil if it has none.
func (a *analysis) placeOf(rank int) *Place {
	if a.r.Fit == nil || !a.r.Fit.Fits {
		return nil
	}
	return a.r.Fit.places[rank]
}

// odd returns the ranks of a circle whose transfers are not those that the ranks in the same
// place of groups alike have issued under the same numbers.
func (a *analysis) odd(ranks []int) (odd []int) {
	for _, rank := range ranks {
		own := a.stands[rank].group
		place := slices.Index(own.ranks, rank)
		differs, alike := false, false
		for _, other := range a.groups {
			if other == own || other.kind != own.kind || len(other.ranks) != len(own.ranks) || place < 0 {
				continue
			}
			switch same, compared := a.same(rank, own, other.ranks[place], other); {
			case compared && same:
				alike = true
			case compared:
				differs = true
			}
		}
		if differs && !alike {
			odd = append(odd, rank)
		}
	}
	return odd
}

// same compares the transfers of two ranks in their groups, as far as both dumps have them.
func (a *analysis) same(rank int, own *group, twin int, other *group) (same, compared bool) {
	type end struct {
		kind flightrec.Kind
		peer int
	}
	ends := map[int64]end{}
	each := func(rank int, of *group, visit func(number int64, e end)) {
		if d := a.dumps[rank]; d != nil {
			for i := range d.Entries {
				if e := &d.Entries[i]; e.Kind != flightrec.Collective && a.group(rank, e) == of {
					visit(e.Number, end{e.Kind, slices.Index(of.ranks, int(e.Peer))})
				}
			}
		}
	}
	each(twin, other, func(number int64, e end) { ends[number] = e })
	same = true
	each(rank, own, func(number int64, e end) {
		if theirs, found := ends[number]; found {
			compared, same = true, same && theirs == e
		}
	})
	return same, compared
}

// last names the last operation that a rank has completed.
func (a *analysis) last(rank int) string {
	entries := a.dumps[rank].Entries
	for i := len(entries) - 1; i >= 0; i-- {
		if e := &entries[i]; !e.Pending() {
			return describe(e) + " of " + a.group(rank, e).name
		}
	}
	return ""
}

// state says how far a rank is.
func (a *analysis) state(rank int) State {
	s := State{Rank: rank}
	if a.dumps[rank] == nil {
		return s
	}
	if s.Last = a.last(rank); s.Last == "" {
		s.Last = a.counted(rank)
	}
	if p := a.placeOf(rank); p != nil {
		s.Place = p.String()
	}
	if p := a.stands[rank].pending; len(p) > 0 {
		s.First = describe(p[0]) + " of " + a.group(rank, p[0]).name
	}
	return s
}

// counted says how far a rank without completed entries is by its status in the groups that
// matter: that of its first pending operation, or those in which others wait for it.
func (a *analysis) counted(rank int) string {
	matters := map[string]bool{}
	if p := a.stands[rank].pending; len(p) > 0 {
		matters[a.group(rank, p[0]).name] = true
	} else {
		for _, w := range a.r.Waits {
			matters[w.Group] = matters[w.Group] || w.For == rank
		}
	}
	var words []string
	for _, g := range a.at[rank] {
		if m := g.members[rank]; matters[g.name] && m.status.Completed >= 0 {
			words = append(words, fmt.Sprintf("%d of %s", m.status.Completed, g.name))
		}
	}
	return strings.Join(words, ", ")
}
