package main

import (
	"fmt"
	"io"
	"strings"
)

// table prints measurements as they arrive.
type table struct {
	out    io.Writer
	headed bool
}

// add prints a measurement.
func (t *table) add(m measurement) error {
	var b strings.Builder
	share := 100 / (m.Peak * float64(m.Threads))
	if m.MedianRate > 0 { // a matrix product
		if !t.headed {
			fmt.Fprintf(&b, "%-18s %7s %9s %8s %9s %8s\n", "product", "threads", "GFLOP/s", "of peak", "median", "of peak")
		}
		fmt.Fprintf(&b, "%-18s %7d %9.1f %7.0f%% %9.1f %7.0f%%\n", m.Name, m.Threads, m.Rate, share*m.Rate, m.MedianRate, share*m.MedianRate)
	} else {
		if !t.headed {
			fmt.Fprintf(&b, "%-12s %7s %10s %10s %10s %12s %9s %8s\n",
				"model", "threads", "tokens/s", "median", "arena MiB", "resident MiB", "GFLOP/s", "of peak")
		}
		const mib = 1 << 20
		fmt.Fprintf(&b, "%-12s %7d %10.0f %10.0f %10.1f %12.1f %9.1f %7.0f%%\n", m.Name, m.Threads, m.Best, m.Median,
			float64(m.Arena)/mib, float64(m.Resident)/mib, m.Rate, share*m.Rate)
	}
	t.headed = true
	for _, s := range m.Profile {
		fmt.Fprintf(&b, "    %-24s %6.1f%% %9.2f ms %6d calls", s.Operation, 100*s.Share, s.Time.Seconds()*1e3, s.Calls)
		if s.Rate > 0 {
			fmt.Fprintf(&b, " %8.1f GFLOP/s", s.Rate)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}
