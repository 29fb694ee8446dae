package memreport

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Compare writes the ranks of two logs side by side.
func Compare(w io.Writer, a, b *Summary) error {
	ranks := map[int]*[2]*RankSummary{}
	for side, s := range [2]*Summary{a, b} {
		for i := range s.Ranks {
			r := &s.Ranks[i]
			if ranks[r.Rank] == nil {
				ranks[r.Rank] = &[2]*RankSummary{}
			}
			ranks[r.Rank][side] = r
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, columns := "rank\trecords A\tB\tpeak A\tB\treserved A\tB\tgrowth A\tB\t", []string{"records", "peak", "reserved", "growth per microbatch"}
	if !slices.ContainsFunc(slices.Collect(maps.Values(ranks)), func(r *[2]*RankSummary) bool { return r[0] == nil || r[1] == nil || r[0].Records != r[1].Records }) {
		head, columns = strings.Replace(head, "records A\tB\t", "", 1), columns[1:] // they are equal
	}
	if a.far() || b.far() {
		head, columns = head+"far A\tB\t", append(columns, "far peak")
	}
	fmt.Fprintln(t, head)
	for _, number := range slices.Sorted(maps.Keys(ranks)) {
		fmt.Fprintf(t, "%d\t", number)
		for _, column := range columns {
			for _, r := range ranks[number] {
				text := "-"
				if r != nil {
					text = rankCells[column](r)
				}
				fmt.Fprint(t, text, "\t")
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
