package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// table prints measurements as they arrive, as a table or as JSON lines.
type table struct {
	out   io.Writer
	plain bool // JSON
	lines int
	err   error // the first error of writing
}

func (t *table) add(m measurement) {
	if t.plain {
		t.keep(json.NewEncoder(t.out).Encode(m))
		return
	}
	if m.MedianRate > 0 {
		t.product(m)
		return
	}
	if t.lines == 0 {
		t.printf("%-12s %7s %10s %10s %10s %12s %9s %8s\n",
			"model", "threads", "tokens/s", "median", "arena MiB", "resident MiB", "GFLOP/s", "of peak")
	}
	t.lines++
	const mib = 1 << 20
	t.printf("%-12s %7d %10.0f %10.0f %10.1f %12.1f %9.1f %7.0f%%\n", m.Name, m.Threads, m.Best, m.Median,
		float64(m.Arena)/mib, float64(m.Resident)/mib, m.Rate, 100*m.Rate/(m.Peak*float64(m.Threads)))
	for _, s := range m.Profile {
		t.printf("    %-24s %6.1f%% %9.2f ms %6d calls", s.Operation, 100*s.Share, s.Time.Seconds()*1e3, s.Calls)
		if s.Rate > 0 {
			t.printf(" %8.1f GFLOP/s", s.Rate)
		}
		t.printf("\n")
	}
}

// product adds the line of a matrix product.
func (t *table) product(m measurement) {
	share := 100 / (m.Peak * float64(m.Threads))
	if t.lines == 0 {
		t.printf("%-18s %7s %9s %8s %9s %8s\n", "product", "threads", "GFLOP/s", "of peak", "median", "of peak")
	}
	t.lines++
	t.printf("%-18s %7d %9.1f %7.0f%% %9.1f %7.0f%%\n", m.Name, m.Threads, m.Rate, share*m.Rate, m.MedianRate, share*m.MedianRate)
}

func (t *table) printf(format string, args ...any) {
	_, err := fmt.Fprintf(t.out, format, args...)
	t.keep(err)
}

func (t *table) keep(err error) {
	if t.err == nil {
		t.err = err
	}
}
