package simulate

import (
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
)

// WriteCosts writes costs as JSON with a schema number and one line per stage:
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
// The fields "far_latency", "far_per_mib", "replicas", "shard", "replica_latency", "replica_per_mib",
// "microbatch" and "lengths" are omitted if they are zero, and so are all fields of a stage except "f". If
// the costs are invalid, the error wraps ErrCosts.
func WriteCosts(w io.Writer, c *Costs) error {
	if err := c.Validate(); err != nil {
		return err
	}
	file := costsFile{costsForm.Schema, *c}
	file.Links, file.Resident = append([]LinkCosts{}, c.Links...), append([]int64{}, c.Resident...) // [], not null
	if err := jsonfile.Write(w, file); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// costsFile is the file format.
type costsFile struct {
	Schema int `json:"schema"`
	Costs
}
