package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/flightrec"
	"github.com/weir-ml/weir/trainer/units"
)

// reason says why the ranks at the end of all waits are to blame: one that waits for none,
// or several that wait for each other.
func (a *analysis) reason(end []int) Reason {
	if len(end) > 1 {
		return a.circle(end)
	}
	rank := end[0]
	s, d := a.stuck[rank], a.dumps[rank]
	one := Reason{Ranks: end, Certain: d != nil && len(d.Entries) > 0}
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
		one.Text = fmt.Sprintf("is in %s of %s, which rank %d has completed its send for", describe(s.Entry), s.group.name, s.Peer)
		return one
	case s.overtaken:
		one.Text = fmt.Sprintf("is in %s of %s, which other members have completed", describe(s.Entry), s.group.name)
		return one
	case s.Entry != nil:
		one.Text = fmt.Sprintf("is in %s of %s, and waits for no rank there", describe(s.Entry), s.group.name)
	case len(s.pending) > 0:
		one.Text = "has nothing pending that holds it up at its place in the plan"
	default:
		one.Text = "has completed all that it issued, at last " + a.last(rank)
	}
	awaited, proven := "", true // what the rank has not issued and another one waits for
	for _, w := range a.r.Waits {
		if w.For != rank || awaited != "" && (proven || !w.Certain) {
			continue
		}
		proven = w.Certain
		switch a.stuck[w.Rank].Kind {
		case flightrec.Send:
			awaited = fmt.Sprintf("the recv that rank %d sends to", w.Rank)
		case flightrec.Recv:
			awaited = fmt.Sprintf("the send that rank %d waits for", w.Rank)
		default:
			awaited = fmt.Sprintf("%s of %s, which rank %d waits in", w.In, w.Group, w.Rank)
		}
	}
	if awaited != "" {
		one.Text += ", and has not issued " + awaited
	}
	one.Certain = one.Certain && proven
	return one
}

// circle says which ranks of a circle are to blame: those whose operation does not match, those
// at a link that does not carry, those whose transfers are in another order, else all.
func (a *analysis) circle(ranks []int) Reason {
	for _, f := range a.r.Findings {
		if f.Mismatch && !slices.ContainsFunc(f.Ranks, func(rank int) bool { return !slices.Contains(ranks, rank) }) {
			return Reason{Ranks: f.Ranks, Circle: true, Text: f.Text, Certain: true}
		}
	}
	all := true
	var departed, odd []int
	var way []string
	for _, rank := range ranks {
		s := a.stuck[rank]
		all = all && s.matched
		if p := a.placeOf(rank); p != nil && p.Departs {
			departed = append(departed, rank)
		}
		if a.odd(rank) {
			odd = append(odd, rank)
		}
		if len(way) < 4 {
			way = append(way, fmt.Sprintf("rank %d is in %s", rank, s.waits[0].In))
		}
	}
	first := a.stuck[ranks[0]]
	text := "wait for each other: " + strings.Join(way, ", ")
	switch {
	case all && first.Kind == flightrec.Collective:
		text = fmt.Sprintf("are all in %s of %s, which does not end: look at what connects them, and at their devices", describe(first.Entry), first.group.name)
	case all && len(ranks) == 2:
		text = "have issued both ends of a transfer between them, which does not end: look at the link between them"
	case departed != nil:
		text = "issued transfers in another order than the plan, so that " + units.Ranks(ranks) + " wait for each other"
		return Reason{Ranks: departed, Circle: true, Certain: true, Text: text}
	case odd != nil:
		return Reason{Ranks: odd, Circle: true, Text: fmt.Sprintf("issued transfers in another order than the ranks in the same place of the groups beside; %s %s", units.Ranks(ranks), text)}
	default:
		text += ": one of them issues its transfers in the wrong order"
	}
	return Reason{Ranks: ranks, Circle: true, Text: text}
}

// placeOf returns the place of a rank in the plan, nil if it has none.
func (a *analysis) placeOf(rank int) *Place {
	if a.r.Fit == nil || !a.r.Fit.Fits {
		return nil
	}
	return a.r.Fit.Places[rank]
}

// odd reports whether a rank's transfers differ from those that the ranks in the same place of
// groups alike have issued under the same numbers, and agree with none of them.
func (a *analysis) odd(rank int) bool {
	own := a.stuck[rank].group
	place, differs := slices.Index(own.ranks, rank), false
	for _, other := range a.groups {
		if other == own || other.kind != own.kind || len(other.ranks) != len(own.ranks) || place < 0 {
			continue
		}
		theirs := a.transfers(other.ranks[place], other)
		same, compared := true, false
		for number, d := range a.transfers(rank, own) {
			if twin, found := theirs[number]; found {
				same, compared = same && twin == d, true
			}
		}
		if compared && same {
			return false
		}
		differs = differs || compared
	}
	return differs
}

// transfers returns the directions of a rank's transfers in a group, by their numbers.
func (a *analysis) transfers(rank int, of *group) map[int64]direction {
	all := map[int64]direction{}
	for e := range a.entries(rank) {
		if e.Kind != flightrec.Collective && a.group(rank, e) == of {
			all[e.Number] = direction{e.Kind, slices.Index(of.ranks, int(e.Peer))}
		}
	}
	return all
}

// last names the last operation that a rank has completed, "" if its dump has none.
func (a *analysis) last(rank int) string {
	var last *flightrec.Entry
	for e := range a.entries(rank) {
		if e.Completed {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return describe(last) + " of " + a.group(rank, last).name
}

// state says how far a rank is. A rank without completed entries has its status in the groups that
// matter: the one of its first pending operation, or those in which others wait for it.
func (a *analysis) state(rank int) State {
	s := State{Rank: rank, Last: a.last(rank)}
	if a.dumps[rank] == nil {
		return s
	}
	if p := a.placeOf(rank); p != nil {
		s.Place = p.String()
	}
	matters := map[string]bool{}
	if p := a.stuck[rank].pending; len(p) > 0 {
		group := a.group(rank, p[0]).name
		s.First, matters[group] = describe(p[0])+" of "+group, true
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
	if s.Last == "" {
		s.Last = strings.Join(words, ", ")
	}
	return s
}
