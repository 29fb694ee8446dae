package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/transport/diagnosis"
)

// stopped explains why a rank that waits for no other is to blame.
func (r *Report) stopped(j *job, ranks []int) diagnosis.Reason {
	rank := j.byID[ranks[0]]
	reason := diagnosis.Reason{Ranks: []int{rank.id}, Certain: len(rank.dump.Operations) > 0 && !rank.dump.Unclosed && rank.dump.Backend == ""}
	switch {
	case rank.broken != nil && rank.missing:
		reason.Text = "left a dump that cannot be read (" + rank.broken.Error() + ")"
	case rank.missing:
		reason.Text = "left no dump"
	case len(rank.dump.Operations) == 0:
		reason.Text = "left a dump without a pending operation"
	case rank.blocked.overtaken && rank.blocked.Kind == flightrec.Recv:
		reason.Text = fmt.Sprintf("is in %s, which rank %d has completed its send for", rank.describe(rank.blocked.Operation), rank.blocked.Peer)
		reason.Certain = reason.Certain && whole(rank, j.byID[int(rank.blocked.Peer)]) && !rank.dump.Hooked // a backend may match transfers by their tags
		return reason
	case rank.blocked.overtaken:
		if f := r.mismatch(rank); f != nil {
			return diagnosis.Reason{Ranks: f.Ranks, Circle: true, Text: f.Text, Certain: f.certain}
		}
		reason.Text = fmt.Sprintf("is in %s, which other members have completed", rank.describe(rank.blocked.Operation))
		reason.Certain = reason.Certain && !rooted(rank.blocked.Operation)
		return reason
	case rank.blocked.Operation != nil:
		reason.Text = fmt.Sprintf("is in %s, and waits for no rank there", rank.describe(rank.blocked.Operation))
	case len(rank.pending) > 0:
		reason.Text = "has nothing pending that holds it up at its place in the plan"
		reason.Certain = reason.Certain && rank.free()
	default:
		reason.Text = "has completed all that it issued, at last " + rank.describe(rank.completed)
	}
	var awaited *Wait // a wait for something that the rank has not issued: the first certain one, or else the first
	for i, w := range r.awaited[rank.id] {
		if awaited == nil || w.Certain && !awaited.Certain {
			awaited = &r.awaited[rank.id][i]
		}
	}
	if awaited == nil {
		return reason
	}
	if waiting := j.byID[awaited.Rank]; rank.missing && waiting.blocked.Kind == flightrec.Collective { // a mismatch can end a process
		if f := r.mismatch(waiting); f != nil {
			return diagnosis.Reason{Ranks: f.Ranks, Circle: true, Text: f.Text, Certain: f.certain}
		}
	}
	if rank.missing {
		reason.Text += ", and is not known to have issued "
	} else {
		reason.Text += ", and has not issued "
	}
	switch awaited.kind {
	case flightrec.Send:
		reason.Text += fmt.Sprintf("the recv that rank %d sends to", awaited.Rank)
	case flightrec.Recv:
		reason.Text += fmt.Sprintf("the send that rank %d waits for", awaited.Rank)
	default:
		reason.Text += fmt.Sprintf("%s of %s, which rank %d waits in", awaited.In, awaited.Group, awaited.Rank)
	}
	reason.Certain = reason.Certain && awaited.Certain
	return reason
}

// cycle says which ranks of a cycle are to blame: those whose operation does not match, those at
// a link that carries nothing, or those whose transfers are in another order; otherwise, all of
// them.
func (r *Report) cycle(j *job, ranks []int) diagnosis.Reason {
	for _, f := range r.Findings {
		if f.Mismatch && !slices.ContainsFunc(f.Ranks, func(rank int) bool { return !slices.Contains(ranks, rank) }) {
			return diagnosis.Reason{Ranks: f.Ranks, Circle: true, Text: f.Text, Certain: f.certain}
		}
	}
	all := true
	var departed, odd []int
	var operations []string
	for _, id := range ranks {
		rank := j.byID[id]
		all = all && rank.blocked.matched
		if rank.place != nil && rank.place.Departs {
			departed = append(departed, id)
		}
		if j.odd(rank) {
			odd = append(odd, id)
		}
		if len(operations) < 4 {
			operations = append(operations, fmt.Sprintf("rank %d is in %s", id, rank.blocked.waits[0].In))
		}
	}
	first := j.byID[ranks[0]]
	reason := diagnosis.Reason{Ranks: ranks, Circle: true}
	text := "wait for each other: " + strings.Join(operations, ", ")
	switch {
	case all && first.blocked.Kind == flightrec.Collective:
		reason.Text = fmt.Sprintf("are all in %s, which does not end: look at what connects them, and at their devices", first.describe(first.blocked.Operation))
	case all && len(ranks) == 2:
		reason.Text = "have issued both ends of a transfer between them, which does not end: look at the link between them, and at the tags of the transfer, which dumps do not contain"
	case departed != nil:
		reason.Ranks = departed
		reason.Text = "issued transfers in another order than the plan, so that " + units.Ranks(ranks) + " wait for each other"
	case odd != nil:
		reason.Ranks = odd
		reason.Text = fmt.Sprintf("issued transfers in another order than the ranks in the same place of the groups beside; %s %s", units.Ranks(ranks), text)
	default:
		reason.Text = text + ": one of them issues its transfers in the wrong order"
	}
	return reason
}

// mismatch returns the finding about the collective that a rank is in, or nil.
func (r *Report) mismatch(rank *rank) *Finding {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.group == rank.group(rank.blocked.Operation) && f.number == rank.blocked.Number {
			return f
		}
	}
	return nil
}

// odd reports whether a rank's transfers differ from those that the ranks in the same place in
// similar groups issued under the same numbers, and agree with none of them.
func (j *job) odd(r *rank) bool {
	own := r.group(r.blocked.Operation)
	place, differs := slices.Index(own.ranks, r.id), false
	for _, other := range j.groups {
		if other == own || other.kind != own.kind || len(other.ranks) != len(own.ranks) || place < 0 {
			continue
		}
		theirs := j.byID[other.ranks[place]].directions(other)
		same, compared := true, false
		for number, d := range r.directions(own) {
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

// directions returns the directions of the rank's transfers in a group, keyed by Operation.Number.
func (r *rank) directions(g *group) map[int64]direction {
	all := map[int64]direction{}
	for i := range r.dump.Operations {
		if e := &r.dump.Operations[i]; e.Kind != flightrec.Collective && r.group(e) == g {
			all[e.Number] = direction{e.Kind, slices.Index(g.ranks, int(e.Peer))}
		}
	}
	return all
}

// state returns the progress of a rank. If the rank's dump has no completed entries, its status in the groups that
// matter is used instead: the group of its first pending operation or, if none is pending, those in which others
// wait for it.
func (r *Report) state(rank *rank) State {
	s := State{Rank: rank.id}
	if rank.missing {
		return s
	}
	if rank.place != nil {
		s.Place = rank.place.String()
	}
	matters := map[string]bool{}
	if len(rank.pending) > 0 {
		s.First = rank.describe(rank.pending[0])
		matters[rank.group(rank.pending[0]).name] = true
	} else {
		for _, w := range r.awaited[rank.id] {
			matters[w.Group] = true
		}
	}
	if rank.completed != nil {
		s.Last = rank.describe(rank.completed)
		return s
	}
	var words []string
	for _, g := range rank.groups {
		if m := g.members[rank.id]; matters[g.name] && m.status.Completed >= 0 {
			words = append(words, fmt.Sprintf("%d of %s", m.status.Completed, g.name))
		}
	}
	s.Last = strings.Join(words, ", ")
	return s
}
