package memreport

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
)

const (
	maxRows     = 32 // maximum number of ranks with their own line
	shownOwners = 12
)

// Text writes a few lines for a terminal.
func (s *Summary) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s of %s, %s in %s\n\n", units.Number(len(s.Ranks), "rank"), units.Number(s.Steps, "step"),
		units.Number(s.Microbatches, "microbatch"), units.Number(s.Records, "record"), s.Form)
	s.rankLines(&b)
	b.WriteByte('\n')
	for _, line := range s.findings() {
		b.WriteString(line + "\n")
	}
	for _, table := range []report.Table{peakTable(s.focus()), s.fp8Table(), s.dumpTable()} {
		writeTable(&b, table)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeTable writes the first rows of a table.
func writeTable(b *strings.Builder, t report.Table) {
	if len(t.Rows) == 0 {
		return
	}
	more := len(t.Rows) - shownOwners
	t = firstRows(t, shownOwners)
	var lines strings.Builder
	t.Text(&lines) // writes to memory, so it cannot fail
	b.WriteString("\n" + t.Title + ":\n")
	for line := range strings.Lines(lines.String()) {
		b.WriteString("  " + strings.TrimRight(line, " \n") + "\n") // the last cell may be empty
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %s more\n", units.Count(int64(more)))
	}
}

// firstRows returns the first n rows of a table.
func firstRows(t report.Table, n int) report.Table {
	t.Rows, t.Shares = t.Rows[:min(len(t.Rows), n)], t.Shares[:min(len(t.Shares), n)]
	return t
}

// rankLines writes a row for each rank.
func (s *Summary) rankLines(b *strings.Builder) {
	table := s.rankTable("rank", "replica", "level", "peak", "planned", "far peak", "reserved", "growth per microbatch")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range append([][]string{table.Head}, firstRows(table, maxRows).Rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	t.Flush() // writes to memory, so it cannot fail
	if n := len(s.Ranks) - maxRows; n > 0 {
		fmt.Fprintf(b, "and %s more\n", units.Number(n, "rank"))
	}
}

// findings returns the most important sentences.
func (s *Summary) findings() (lines []string) {
	byFinding := map[string][]int{} // ranks by their finding
	var order []string
	for i := range s.Ranks {
		if r := &s.Ranks[i]; r.Growth.Grows() || r.Growth.Unclear {
			finding := r.Growth.sentence(s.Microbatches)
			if byFinding[finding] == nil {
				order = append(order, finding)
			}
			byFinding[finding] = append(byFinding[finding], r.Rank)
		}
	}
	for i, finding := range order {
		if i == maxRows {
			lines = append(lines, fmt.Sprintf("and %d more, each in another way", len(order)-i))
			break
		}
		each := ""
		if len(byFinding[finding]) > 1 {
			each = "each of "
		}
		lines = append(lines, each+units.Ranks(byFinding[finding])+" "+finding)
	}
	if order == nil {
		lines = append(lines, "nothing grows")
	}
	return append(lines, s.planFindings()...)
}

// planFindings returns sentences that compare measurements with the plan.
func (s *Summary) planFindings() (lines []string) {
	ranks, exact := 0, 0
	for i := range s.Ranks {
		r := &s.Ranks[i]
		if r.Planned == nil {
			continue
		}
		ranks++
		switch p := r.Planned; {
		case r.FarPlanned > 0 && r.FarPeak != r.FarPlanned:
			lines = append(lines, fmt.Sprintf("rank %d had %s in far memory at its peak, planned %s", r.Rank, units.Exactly(r.FarPeak), units.Exactly(r.FarPlanned)))
		case p.Peak == r.Peak && p.Most == 0 && p.Least == 0:
			exact++
		case p.Most > 0:
			lines = append(lines, fmt.Sprintf("rank %d had up to %s more than planned; peak %s, planned %s", r.Rank, units.Exactly(p.Most), units.Exactly(r.Peak), units.Exactly(p.Peak)))
		default:
			lines = append(lines, fmt.Sprintf("rank %d stays within its plan: peak %s of %s", r.Rank, units.Exactly(r.Peak), units.Exactly(p.Peak)))
		}
	}
	if len(lines) > maxRows {
		lines = append(lines[:maxRows], fmt.Sprintf("and %s more", units.Number(len(lines)-maxRows, "rank")))
	}
	if exact > 0 {
		lines = append(lines, fmt.Sprintf("measured as planned, to the byte, on %d of %s", exact, units.Number(ranks, "rank")))
	}
	return lines
}
