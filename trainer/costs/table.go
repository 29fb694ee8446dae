package costs

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

// secondsOf maps the time units of costs to seconds.
var secondsOf = map[string]float64{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}

// Seconds converts a time of the costs to seconds. It returns false if their unit is unknown.
func Seconds(costs *simulate.Costs, time int64) (float64, bool) {
	unit, known := secondsOf[costs.Unit]
	return costs.Units(time) * unit, known
}

// Table writes a row for each stage, with its name, and a line about the links.
func Table(w io.Writer, costs *simulate.Costs, names []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "stage\tpart\tQUANTIZE\tF\tI\tW\tB\toutput\tgradient\tsaved\tfreed by I\tcarry\tresident")
	for i, s := range costs.Stages {
		fmt.Fprintf(t, "%d\t%s", i, names[i])
		for _, time := range [...]int64{s.Quantize, s.F, s.I, s.W, s.B} {
			seconds, _ := Seconds(costs, time)
			fmt.Fprintf(t, "\t%s", units.Seconds(seconds))
		}
		for _, size := range [...]int64{s.Output, s.Gradient, s.Saved, s.FreedByI, s.Carry, s.Resident} {
			fmt.Fprintf(t, "\t%s", units.Size(size))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nA hop between ranks takes %v, and %v more for a MiB.\n", time.Duration(costs.Latency), time.Duration(costs.PerMiB))
	return err
}
