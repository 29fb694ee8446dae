package memreport

import (
	"encoding/csv"
	"fmt"
	"io"

	"github.com/weir-ml/weir/memory/memlog"
)

// NewCSV returns a sink that writes a line of CSV for each record, below a line of
// names. A field is empty where the record does not say it. Owners are left out.
func NewCSV(w io.Writer) Sink {
	c := &csvSink{csv.NewWriter(w)}
	c.w.Write(fieldNames) // Close has the error.
	return c
}

type csvSink struct{ w *csv.Writer }

// Add writes a line.
func (c *csvSink) Add(r *memlog.Record) error {
	if !r.Sampled() {
		return nil
	}
	values := fieldValues(r)
	line := make([]string, len(values))
	for i, value := range values {
		if value != nil {
			line[i] = fmt.Sprint(value)
		}
	}
	return c.w.Write(line)
}

// Close writes what is left.
func (c *csvSink) Close() error {
	c.w.Flush()
	return c.w.Error()
}
