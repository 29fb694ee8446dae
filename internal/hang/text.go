package hang

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/trainer/units"
)

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
			return fmt.Sprintf("no rank waits for another one: nothing is pending on %s of %d, and %d left no dump", units.Number(r.Ranks-missing, "rank"), r.Ranks, missing)
		}
		return fmt.Sprintf("no rank waits for another one: nothing is pending on %s", units.Number(r.Ranks, "rank"))
	}
	var stopped []int
	var who, why []string
	for _, reason := range r.Reasons {
		ranks := units.Ranks(reason.Ranks)
		switch {
		case !reason.Circle:
			stopped = append(stopped, reason.Ranks...)
		case len(reason.Ranks) > 1:
			who = append(who, ranks+" wait for each other")
		default:
			who = append(who, ranks+" does not do what it should")
		}
		if len(why) == mostReasons {
			continue
		}
		if i := slices.IndexFunc(r.States, func(s State) bool { return s.Rank == reason.Ranks[0] && s.Place != "" }); i >= 0 && len(reason.Ranks) == 1 {
			ranks += " (" + r.States[i].Place + ")"
		}
		if r.Certain != reason.Certain { // some are, and some are not
			reason.Text += " (certain)"
		}
		why = append(why, ranks+" "+reason.Text)
	}
	if more := len(r.Reasons) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	slices.Sort(stopped)
	verb := " stopped"
	if r.live {
		verb = " " + verbOf(stopped, "waits", "wait") + " for none"
	}
	if len(stopped) > 0 {
		who = append([]string{units.Ranks(stopped) + verb}, who...)
	}
	them, sure := verbOf(r.Blamed, "it", "them"), " (likely)"
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

// verbOf returns the word for one rank or for several.
func verbOf(ranks []int, one, several string) string {
	if len(ranks) == 1 {
		return one
	}
	return several
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintln(w, r.Verdict())
	r.plan(w)
	var findings, gaps []string
	for _, f := range r.Findings {
		findings = append(findings, f.Text)
	}
	if len(r.Missing) > 0 {
		gaps = append(gaps, units.Ranks(r.Missing)+" left no dump that can be read")
	}
	if len(r.Empty) > 0 {
		gaps = append(gaps, units.Ranks(r.Empty)+" left a dump without operations")
	}
	gaps = append(gaps, r.Broken...)
	if r.Skipped > 0 {
		gaps = append(gaps, units.Number(r.Skipped, "file")+" left out, for want of a rank at the end of the name")
	}
	section(w, "who waits, from there outward", r.chain())
	section(w, "what has no other end, or does not match", findings)
	section(w, "missing", gaps)
	return r.states(w)
}

// section writes lines under a title, up to a number, and nothing if there are none.
func section(w io.Writer, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s:\n", title)
	}
	for _, line := range lines[:min(len(lines), mostLines)] {
		fmt.Fprintln(w, "  "+line)
	}
	if more := len(lines) - mostLines; more > 0 {
		fmt.Fprintf(w, "  and %s more, which --json has\n", units.Number(more, "line"))
	}
}

// plan says how the dumps fit the plan.
func (r *Report) plan(w io.Writer) {
	switch f := r.Fit; {
	case f == nil:
		return
	case f.Fits:
		fmt.Fprintf(w, "\nplan %q: %s of %s\n", f.Plan, units.Number(len(f.Pipelines), "pipeline"), units.Number(len(f.Pipelines[0]), "rank"))
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
	of := graph(r.Waits)
	near := map[int]bool{}
	for _, rank := range r.Blamed {
		near[rank] = true
	}
	for depth := 0; len(near) > 0; depth++ {
		var stands []string // in the order of their first rank
		ranks := map[string][]int{}
		next := map[int]bool{}
		for _, s := range r.States {
			waits := of[s.Rank]
			if !slices.ContainsFunc(waits, func(w Wait) bool { return near[w.For] }) {
				continue
			}
			var awaited []int
			for _, w := range waits {
				awaited = append(awaited, w.For)
			}
			at := fmt.Sprintf("for %s: %s", units.Ranks(awaited), waits[0].In)
			if waits[0].Group != "" {
				at += " of " + waits[0].Group
			}
			if ranks[at] == nil {
				stands = append(stands, at)
			}
			ranks[at], next[s.Rank] = append(ranks[at], s.Rank), true
		}
		for _, at := range stands {
			lines = append(lines, fmt.Sprintf("%s%s %s %s", strings.Repeat("  ", min(depth, 8)), units.Ranks(ranks[at]), verbOf(ranks[at], "waits", "wait"), at))
		}
		for rank := range next {
			delete(of, rank)
		}
		near = next
	}
	return lines
}

// states writes how far each rank is, the blamed ones first.
func (r *Report) states(w io.Writer) error {
	if len(r.States) == 0 {
		return nil
	}
	blamed := func(s State) bool { return slices.Contains(r.Blamed, s.Rank) }
	states := slices.DeleteFunc(slices.Clone(r.States), func(s State) bool { return !blamed(s) })
	states = append(states, slices.DeleteFunc(slices.Clone(r.States), blamed)...)
	head := "rank\tlast completed\tfirst pending"
	placed := r.live || r.Fit != nil && r.Fit.Fits
	switch {
	case r.live:
		head += "\tstate"
	case placed:
		head += "\tplace in the plan"
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\n"+head)
	for _, s := range states[:min(len(states), mostLines)] {
		fmt.Fprintf(t, "%d\t%s\t%s", s.Rank, cmp.Or(s.Last, "-"), cmp.Or(s.First, "-"))
		if placed {
			fmt.Fprintf(t, "\t%s", cmp.Or(s.Place, "-"))
		}
		fmt.Fprintln(t)
	}
	if more := len(states) - mostLines; more > 0 {
		fmt.Fprintf(t, "and %s more, which --json has\n", units.Number(more, "rank"))
	}
	return t.Flush()
}
