package memreport

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// NewCSV returns a sink that writes a line of CSV for each record, below a line of
// names. What a record does not say is empty. Owners are left out.
func NewCSV(w io.Writer) Sink {
	c := &csvSink{w: bufio.NewWriter(w)}
	names := []string{"time", "step", "rank", "microbatch", "stage", "action", "live", "live_planned", "peak", "peak_planned",
		"reserved", "excess", "growth", "weight", "wait_data"}
	for _, of := range []string{"", peakOf} {
		for class := range memory.NumClasses {
			names = append(names, of+memory.Class(class).String())
		}
	}
	c.w.WriteString(strings.Join(names, ",") + "\n")
	return c
}

// peakOf stands before the name of a class whose bytes are those at the peak.
const peakOf = "peak_"

// peakKnown reports whether a record says what its peak was by class.
func peakKnown(r *memlog.Record) bool { return r.PeakClasses != memory.ByClass{} }

// csvSink writes lines of fields. The first error of the writer is kept in it.
type csvSink struct {
	w    *bufio.Writer
	line []byte
}

// Add writes a line.
func (c *csvSink) Add(r *memlog.Record) error {
	if !r.Sampled() {
		return nil
	}
	full := r.Schema > 0
	c.line = c.line[:0]
	c.number(r.Time, full)
	c.number(r.Step, true)
	c.number(int64(r.Rank), true)
	c.number(int64(r.Microbatch), true)
	c.number(int64(r.Stage), full)
	c.text(r.Kind)
	c.number(r.Live, true)
	c.number(r.LivePlanned, r.Planned)
	c.number(r.Peak, true)
	c.number(r.PeakPlanned, r.Planned)
	c.number(r.Reserved, true)
	c.number(r.Excess, full)
	c.number(r.Growth, full)
	if full {
		c.line = strconv.AppendFloat(c.line, r.Weight, 'g', -1, 64)
	}
	c.line = append(c.line, ',')
	c.number(r.WaitData, full)
	for _, bytes := range r.Classes {
		c.number(bytes, full)
	}
	for _, bytes := range r.PeakClasses {
		c.number(bytes, peakKnown(r))
	}
	c.line[len(c.line)-1] = '\n'
	_, err := c.w.Write(c.line)
	return err
}

// number adds a field, empty where it is not known.
func (c *csvSink) number(n int64, known bool) {
	if known {
		c.line = strconv.AppendInt(c.line, n, 10)
	}
	c.line = append(c.line, ',')
}

// text adds a field, in quotation marks where it needs them.
func (c *csvSink) text(s string) {
	if strings.ContainsAny(s, "\",\r\n") {
		s = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	c.line = append(append(c.line, s...), ',')
}

// Close writes what is left.
func (c *csvSink) Close() error { return c.w.Flush() }
