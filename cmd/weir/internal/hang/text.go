package hang

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule/units"
)

// maxLines is the maximum number of lines of a section in the text. The JSON contains everything.
const maxLines = 40

// pending returns the number of ranks with pending operations.
func (r *Report) pending() (n int) {
	for _, s := range r.States {
		if s.First != "" {
			n++
		}
	}
	return n
}

// Found reports whether a rank is to blame, or ranks disagree about an operation.
func (r *Report) Found() bool {
	return len(r.Blamed) > 0 || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Mismatch })
}

// Summary names the ranks to blame and the reason, in two lines, or says in one line that no rank is to blame.
func (r *Report) Summary() string {
	if n := len(r.Empty) + len(r.Missing); n > 0 && n == r.Ranks && len(r.Blamed) == 0 {
		return "no dump has an operation, so nothing is known of " + units.Number(n, "rank")
	}
	if len(r.Blamed) == 0 {
		text := "no rank waits for another one: nothing is pending on " + units.Number(r.Ranks-len(r.Missing), "rank")
		if n := r.pending(); n > 0 && !r.live {
			text = fmt.Sprintf("no rank is seen to wait for another one, but operations are pending on %d of %s", n, units.Number(r.Ranks-len(r.Missing), "rank"))
		}
		if len(r.Missing) > 0 {
			text += fmt.Sprintf(" of %d, and %d left no dump", r.Ranks, len(r.Missing))
		}
		return text
	}
	one, several := "stopped", "stopped"
	if r.live {
		one, several = "waits for none", "wait for none"
	}
	if slices.ContainsFunc(r.Blamed, func(rank int) bool { return slices.Contains(r.Missing, rank) }) { // nothing shows that it stopped
		one, several = "was not seen", "stopped or were not seen"
		if !slices.ContainsFunc(r.Blamed, func(rank int) bool { return !slices.Contains(r.Missing, rank) }) {
			several = "were not seen"
		}
	}
	return r.Text(one, several, func(rank int) string {
		if i := slices.IndexFunc(r.States, func(s State) bool { return s.Rank == rank }); i >= 0 {
			return r.States[i].Place
		}
		return ""
	})
}

// Write writes the report as text for people.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintln(w, r.Summary())
	if f := r.Fit; f != nil {
		if f.Fits {
			fmt.Fprintf(w, "\nplan %q: %s of %s\n", f.Plan, units.Number(len(f.Pipelines), "pipeline"), units.Number(len(f.Pipelines[0]), "rank"))
		} else {
			fmt.Fprintf(w, "\nplan %q does not fit the dumps, which are judged without it: %s\n", f.Plan, f.Why)
		}
		if f.Deadlock != "" {
			fmt.Fprintf(w, "the plan itself cannot run: %s\n", f.Deadlock)
		}
	}
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
	if len(r.Unclosed) > 0 {
		gaps = append(gaps, units.Ranks(r.Unclosed)+" left dumps that contain only pending operations, which lack the ends of batches: some transfers were taken as completed, and a hang in one of them does not show")
	}
	for _, backend := range r.Unseen {
		gaps = append(gaps, "backend "+backend+" does not tell when its operations end, or when batched transfers do: a hang in one shows only if another rank has not issued it, in dumps with the whole history or with two collectives")
	}
	if r.Newer != "" {
		gaps = append(gaps, "dumps have version "+r.Newer+", and may say what this weir does not know")
	}
	gaps = append(gaps, r.Broken...)
	if r.Skipped > 0 {
		gaps = append(gaps, units.Number(r.Skipped, "file")+" left out, because their names do not end in a rank")
	}
	section(w, "who waits, from there outward", r.chain())
	section(w, "what has no other end, or does not match", findings)
	section(w, "missing", gaps)
	return r.states(w)
}

// section writes the first lines of a list under a title, or nothing if the list is empty.
func section(w io.Writer, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s:\n", title)
	}
	for _, line := range lines[:min(len(lines), maxLines)] {
		fmt.Fprintln(w, "  "+line)
	}
	if more := len(lines) - maxLines; more > 0 {
		fmt.Fprintf(w, "  and %s more, which --json has\n", units.Number(more, "line"))
	}
}

// chain returns a line for each set of ranks that wait in the same operation for the same ranks,
// those next to the blamed ranks first.
func (r *Report) chain() (lines []string) {
	byRank := map[int][]Wait{}
	for _, w := range r.Waits {
		byRank[w.Rank] = append(byRank[w.Rank], w)
	}
	for depth, layer := range graph(r.Waits).Layers(r.Blamed) {
		var operations []string // in order of their first rank
		ranks := map[string][]int{}
		for _, rank := range layer {
			waits := byRank[rank]
			var awaited []int
			for _, w := range waits { // a batch may wait for one rank in several transfers
				if !slices.Contains(awaited, w.For) {
					awaited = append(awaited, w.For)
				}
			}
			operation := fmt.Sprintf("for %s: %s", units.Ranks(awaited), waits[0].In)
			if waits[0].Group != "" {
				operation += " of " + waits[0].Group
			}
			if ranks[operation] == nil {
				operations = append(operations, operation)
			}
			ranks[operation] = append(ranks[operation], rank)
		}
		for _, operation := range operations {
			some, verb := ranks[operation], "wait"
			if len(some) == 1 {
				verb = "waits"
			}
			lines = append(lines, fmt.Sprintf("%s%s %s %s", strings.Repeat("  ", min(depth, 8)), units.Ranks(some), verb, operation))
		}
	}
	return lines
}

// states writes the progress of at most maxLines ranks, the blamed ones first.
func (r *Report) states(w io.Writer) error {
	if len(r.States) == 0 {
		return nil
	}
	head, placed := "\nrank\tlast completed\tfirst pending", true
	switch {
	case r.live:
		head += "\tstate"
	case r.Fit != nil && r.Fit.Fits:
		head += "\tplace in the plan"
	default:
		placed = false
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	left := maxLines
	for _, blamed := range []bool{true, false} {
		for _, s := range r.States {
			if slices.Contains(r.Blamed, s.Rank) != blamed {
				continue
			}
			if left--; left < 0 {
				continue
			}
			fmt.Fprintf(t, "%d\t%s\t%s", s.Rank, cmp.Or(s.Last, "-"), cmp.Or(s.First, "-"))
			if placed {
				fmt.Fprintf(t, "\t%s", cmp.Or(s.Place, "-"))
			}
			fmt.Fprintln(t)
		}
	}
	if left < 0 {
		fmt.Fprintf(t, "and %s more, which --json has\n", units.Number(-left, "rank"))
	}
	return t.Flush()
}
