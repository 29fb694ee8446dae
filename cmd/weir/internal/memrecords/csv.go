package memrecords

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory/memlog"
)

// NewCSV returns a sink that writes a CSV header, followed by a line for each record of a
// microbatch. Fields missing from the record are empty. Other records, such as owners, are omitted.
func NewCSV(w io.Writer) Sink {
	c := &csvSink{w: bufio.NewWriter(w)}
	c.w.WriteString(strings.Join(fieldNames, ",") + "\n")
	return c
}

// csvSink writes lines of fields. It keeps the writer's first error.
type csvSink struct {
	w    *bufio.Writer
	line []byte
}

// Add writes a line for the record of a microbatch, and nothing for other records.
func (c *csvSink) Add(r *memlog.Record) error {
	if !r.Sampled() {
		return nil
	}
	c.line = c.line[:0]
	for _, value := range fieldsOf(r) {
		switch value := value.(type) {
		case int64:
			c.line = strconv.AppendInt(c.line, value, 10)
		case float64:
			c.line = strconv.AppendFloat(c.line, value, 'g', -1, 64)
		case string:
			if strings.ContainsAny(value, "\",\r\n") {
				value = `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
			}
			c.line = append(c.line, value...)
		}
		c.line = append(c.line, ',')
	}
	c.line[len(c.line)-1] = '\n'
	_, err := c.w.Write(c.line)
	return err
}

// Close flushes the writer.
func (c *csvSink) Close() error { return c.w.Flush() }
