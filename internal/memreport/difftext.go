package memreport

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/trainer/units"
)

// Text says the difference in a line or two. A nil Difference says that there is none.
func (d *Difference) Text(w io.Writer, a, b string) error {
	if d == nil {
		_, err := fmt.Fprintln(w, "the same, record by record")
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "first difference: step %d, rank %d, microbatch %d", d.Step, d.Rank, d.Microbatch)
	switch d.Ended {
	case "a":
		fmt.Fprintf(&text, ": %s has no such record, and %s has\n", a, b)
	case "b":
		fmt.Fprintf(&text, ": %s has no such record, and %s has\n", b, a)
	default:
		text.WriteByte('\n')
		t := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
		for _, f := range d.Fields {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", f.Name, f.say(f.A), f.say(f.B), f.change())
		}
		t.Flush() // Into memory.
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// say writes a value of the field.
func (f *Field) say(value any) string {
	if n, ok := value.(int64); ok {
		return units.Count(n)
	}
	return printable(fmt.Sprint(value))
}

// change is the difference of two numbers of bytes.
func (f *Field) change() string {
	a, ok := f.A.(int64)
	b, also := f.B.(int64)
	switch {
	case !ok || !also || f.Name == "step" || f.Name == "microbatch" || f.Name == "stage":
		return ""
	case b > a:
		return "+" + units.Size(b-a)
	}
	return units.Size(b - a)
}

// Compare writes the ranks of two logs side by side.
func Compare(w io.Writer, a, b *Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rank\trecords A\tB\tpeak A\tB\treserved A\tB\tgrowth A\tB\t")
	both := [2]*Summary{a, b}
	for i, j := 0, 0; i < len(a.Ranks) || j < len(b.Ranks); {
		number := -1
		for k, at := range [2]int{i, j} {
			if at < len(both[k].Ranks) && (number < 0 || both[k].Ranks[at].Rank < number) {
				number = both[k].Ranks[at].Rank
			}
		}
		var cells [4][2]string
		for k, at := range [2]*int{&i, &j} {
			for c := range cells {
				cells[c][k] = "-"
			}
			if *at < len(both[k].Ranks) && both[k].Ranks[*at].Rank == number {
				r := &both[k].Ranks[*at]
				cells[0][k], cells[1][k], cells[2][k], cells[3][k] = units.Count(r.Records), units.Size(r.Peak), units.Size(r.Reserved), r.Growth.short()
				*at++
			}
		}
		fmt.Fprintf(t, "%d\t", number)
		for _, c := range cells {
			fmt.Fprintf(t, "%s\t%s\t", c[0], c[1])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
