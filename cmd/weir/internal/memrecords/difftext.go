package memrecords

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/terminal"
)

// Text writes the difference: a line with its place, and a line for each field that differs. A nil Difference means
// that there is none.
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
		t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		for _, f := range d.Fields {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", f.Name, f.format(f.A), f.format(f.B), f.change())
		}
		t.Flush() // writes to memory, so it cannot fail
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// format formats a value of the field.
func (f *Field) format(value any) string {
	if n, ok := value.(int64); ok {
		return units.Count(n)
	}
	return terminal.Quote(fmt.Sprint(value))
}

// change describes the difference between two sizes. It returns "" for fields of other values.
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
