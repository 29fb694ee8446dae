package memreport

import (
	"bufio"
	"io"
	"strings"

	"github.com/weir-ml/weir/memory/memlog"
)

// NewCSV returns a sink that writes a header, and then a line of CSV for each record. Fields that
// the record does not have are empty. Owners are omitted.
func NewCSV(w io.Writer) Sink {
	c := &csvSink{w: bufio.NewWriter(w)}
	c.w.WriteString(strings.Join(fieldNames, ",") + "\n")
	return c
}

// csvSink writes lines of fields. It keeps the first error of the writer.
type csvSink struct {
	w    *bufio.Writer
	line []byte
}

// Add writes a line.
func (c *csvSink) Add(r *memlog.Record) error {
	if !r.Sampled() {
		return nil
	}
	c.line = c.line[:0]
	for _, f := range fieldsOf(r) {
		c.line = append(f.append(c.line), ',')
	}
	c.line[len(c.line)-1] = '\n'
	_, err := c.w.Write(c.line)
	return err
}

// Close flushes the writer.
func (c *csvSink) Close() error { return c.w.Flush() }
