package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// costsSchema is the version of the form.
const costsSchema = 1

// WriteCosts writes costs as JSON, a line for each stage, under a schema number:
//
//	{
//	  "schema": 1,
//	  "unit": "ms",
//	  "scale": 1000,
//	  "latency": 601,
//	  "per_mib": 0,
//	  "links": [],
//	  "resident": [],
//	  "stages": [
//	    {"f":18522,"i":18086,"w":9337,"saved":1048576}
//	  ]
//	}
//
// "microbatch" is written where it is not 0. Of a stage, what is 0 is left out, but for f. Costs that are not valid are an
// error that wraps ErrCosts.
func WriteCosts(w io.Writer, c *Costs) error {
	if err := c.Validate(); err != nil {
		return err
	}
	var b bytes.Buffer
	unit, err := json.Marshal(c.Unit)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCosts, err)
	}
	fmt.Fprintf(&b, "{\n  \"schema\": %d,\n  \"unit\": %s,\n  \"scale\": %d,\n  \"latency\": %d,\n  \"per_mib\": %d,\n",
		costsSchema, unit, c.Scale, c.Latency, c.PerMiB)
	if c.Microbatch != 0 {
		fmt.Fprintf(&b, "  \"microbatch\": %d,\n", c.Microbatch)
	}
	err = errors.Join(
		writeLines(&b, "links", c.Links), writeLines(&b, "resident", c.Resident), writeLines(&b, "stages", c.Stages))
	if err != nil {
		return err
	}
	b.Truncate(b.Len() - len(",\n"))
	b.WriteString("\n}\n")
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// writeLines writes a list with a line for each of its values, and a comma.
func writeLines[T any](b *bytes.Buffer, name string, list []T) error {
	fmt.Fprintf(b, "  %q: [", name)
	for i, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCosts, err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(text)
	}
	if len(list) > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("],\n")
	return nil
}
