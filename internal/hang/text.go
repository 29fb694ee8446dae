package hang

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/trainer/units"
)

func plural(n int, thing string) string { return units.Number(n, thing) }

func ranksText(ranks []int) string { return units.Ranks(ranks) }

// What people are shown of a large job. JSON has all.
const (
	mostReasons = 4
	mostLines   = 40
)

// Found reports whether something is wrong.
func (r *Report) Found() bool {
	return len(r.Blamed) > 0 || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Mismatch })
}

// Verdict says in two lines who is to blame, and why.
func (r *Report) Verdict() string {
	if len(r.Blamed) == 0 {
		if missing := len(r.Missing); missing > 0 {
			return fmt.Sprintf("no rank waits for another one: nothing is pending on %s of %d, and %d left no dump", plural(r.Ranks-missing, "rank"), r.Ranks, missing)
		}
		return fmt.Sprintf("no rank waits for another one: nothing is pending on %s", plural(r.Ranks, "rank"))
	}
	var stopped []int
	var who, why []string
	for _, reason := range r.Reasons {
		switch {
		case !reason.Circle:
			stopped = append(stopped, reason.Ranks...)
		case len(reason.Ranks) > 1:
			who = append(who, ranksText(reason.Ranks)+" wait for each other")
		default:
			who = append(who, ranksText(reason.Ranks)+" does not do what it should")
		}
		if len(why) < mostReasons {
			text := ranksText(reason.Ranks) + r.placeText(reason.Ranks) + " " + reason.Text
			if r.Certain != reason.Certain { // some are, and some are not
				text += " (certain)"
			}
			why = append(why, text)
		}
	}
	if len(stopped) > 0 {
		slices.Sort(stopped)
		verb := " stopped"
		if r.live {
			verb = " waits for none"
			if len(stopped) > 1 {
				verb = " wait for none"
			}
		}
		who = append([]string{ranksText(stopped) + verb}, who...)
	}
	if more := len(r.Reasons) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	them, sure := "them", " (likely)"
	if len(r.Blamed) == 1 {
		them = "it"
	}
	if r.Certain {
		sure = " (certain)"
	}
	switch len(r.Behind) {
	case 0:
	case 1:
		who = append(who, "1 other waits for "+them)
	default:
		who = append(who, fmt.Sprintf("%d others wait for %s, directly or through others", len(r.Behind), them))
	}
	return fmt.Sprintf("%s%s\n%s", strings.Join(who, "; "), sure, strings.Join(why, "; "))
}

// placeText says where a single rank is in the plan.
func (r *Report) placeText(ranks []int) string {
	for _, s := range r.States {
		if len(ranks) == 1 && s.Rank == ranks[0] && s.Place != "" {
			return " (" + s.Place + ")"
		}
	}
	return ""
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintln(w, r.Verdict())
	r.plan(w)
	if lines := r.chain(); len(lines) > 0 {
		fmt.Fprintln(w, "\nwho waits, from there outward:")
		list(w, lines)
	}
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, f.Text)
	}
	if len(lines) > 0 {
		fmt.Fprintln(w, "\nwhat has no other end, or does not match:")
		list(w, lines)
	}
	r.gaps(w)
	return r.states(w)
}

// list writes lines, up to a number.
func list(w io.Writer, lines []string) {
	for _, line := range lines[:min(len(lines), mostLines)] {
		fmt.Fprintln(w, "  "+line)
	}
	if more := len(lines) - mostLines; more > 0 {
		fmt.Fprintf(w, "  and %s more, which --json has\n", plural(more, "line"))
	}
}

// plan says how the dumps fit the plan.
func (r *Report) plan(w io.Writer) {
	switch f := r.Fit; {
	case f == nil:
		return
	case f.Fits:
		fmt.Fprintf(w, "\nplan %q: %s of %s\n", f.Plan, plural(len(f.Pipelines), "pipeline"), plural(len(f.Pipelines[0]), "rank"))
	default:
		fmt.Fprintf(w, "\nplan %q does not fit the dumps, which are judged without it: %s\n", f.Plan, f.Why)
	}
	if r.Fit.Deadlock != "" {
		fmt.Fprintf(w, "the plan itself cannot run: %s\n", r.Fit.Deadlock)
	}
}

// chain returns a line for the ranks that wait in the same operation for the same ranks,
// those next to the blamed ranks first.
func (r *Report) chain() (lines []string) {
	type stand struct{ in, group, awaited string }
	of := map[int][]Wait{}
	for _, w := range r.Waits {
		of[w.Rank] = append(of[w.Rank], w)
	}
	near := map[int]bool{}
	for _, rank := range r.Blamed {
		near[rank] = true
	}
	for depth := 0; len(near) > 0; depth++ {
		var stands []stand
		ranks := map[stand][]int{}
		next := map[int]bool{}
		for _, rank := range r.order() {
			waits, open := of[rank]
			if !open || !slices.ContainsFunc(waits, func(w Wait) bool { return near[w.For] }) {
				continue
			}
			var awaited []int
			for _, w := range waits {
				awaited = append(awaited, w.For)
			}
			at := stand{waits[0].In, waits[0].Group, ranksText(awaited)}
			if ranks[at] == nil {
				stands = append(stands, at)
			}
			ranks[at] = append(ranks[at], rank)
			next[rank] = true
		}
		for _, at := range stands {
			verb := "waits"
			if len(ranks[at]) > 1 {
				verb = "wait"
			}
			line := fmt.Sprintf("%s%s %s for %s: %s", strings.Repeat("  ", min(depth, 8)), ranksText(ranks[at]), verb, at.awaited, at.in)
			if at.group != "" {
				line += " of " + at.group
			}
			lines = append(lines, line)
		}
		for rank := range next {
			delete(of, rank)
		}
		near = next
	}
	return lines
}

// order returns the ranks in ascending order.
func (r *Report) order() (ranks []int) {
	for _, s := range r.States {
		ranks = append(ranks, s.Rank)
	}
	return ranks
}

// gaps writes what is missing.
func (r *Report) gaps(w io.Writer) {
	var lines []string
	if len(r.Missing) > 0 {
		lines = append(lines, ranksText(r.Missing)+" left no dump that can be read")
	}
	if len(r.Empty) > 0 {
		lines = append(lines, ranksText(r.Empty)+" left a dump without operations")
	}
	lines = append(lines, r.Broken...)
	if r.Skipped > 0 {
		lines = append(lines, plural(r.Skipped, "file")+" left out, for want of a rank at the end of the name")
	}
	if len(lines) > 0 {
		fmt.Fprintln(w, "\nmissing:")
		list(w, lines)
	}
}

// states writes how far each rank is, the blamed ones first.
func (r *Report) states(w io.Writer) error {
	if len(r.States) == 0 {
		return nil
	}
	states := slices.Clone(r.States)
	slices.SortStableFunc(states, func(a, b State) int {
		blamed := func(rank int) int {
			if slices.Contains(r.Blamed, rank) {
				return 0
			}
			return 1
		}
		return blamed(a.Rank) - blamed(b.Rank)
	})
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	placed := r.live || r.Fit != nil && r.Fit.Fits
	head := "rank\tlast completed\tfirst pending"
	switch {
	case r.live:
		head += "\tstate"
	case placed:
		head += "\tplace in the plan"
	}
	fmt.Fprintln(t, head)
	for _, s := range states[:min(len(states), mostLines)] {
		fmt.Fprintf(t, "%d\t%s\t%s", s.Rank, or(s.Last), or(s.First))
		if placed {
			fmt.Fprintf(t, "\t%s", or(s.Place))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more := len(states) - mostLines; more > 0 {
		_, err := fmt.Fprintf(w, "and %s more, which --json has\n", plural(more, "rank"))
		return err
	}
	return nil
}

func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
