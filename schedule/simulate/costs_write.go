package simulate

import (
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/jsontext"
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
// "far_latency", "far_per_mib" and "microbatch" are written if they are not 0. Of a stage,
// a 0 is left out, but for f. Costs that are not valid are an error that wraps ErrCosts.
func WriteCosts(w io.Writer, c *Costs) error {
	if err := c.Validate(); err != nil {
		return err
	}
	file := costsFile{
		costsSchema, c.Unit, c.Scale, c.Latency, c.PerMiB, c.FarLatency, c.FarPerMiB, c.Microbatch,
		append([]LinkCosts{}, c.Links...), append([]int64{}, c.Resident...), c.Stages,
	}
	if err := jsontext.Write(w, file); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// costsFile is the form.
type costsFile struct {
	Schema     int          `json:"schema" whole:"the schema,1,1"`
	Unit       string       `json:"unit"`
	Scale      int64        `json:"scale"`
	Latency    int64        `json:"latency"`
	PerMiB     int64        `json:"per_mib"`
	FarLatency int64        `json:"far_latency,omitempty"`
	FarPerMiB  int64        `json:"far_per_mib,omitempty"`
	Microbatch int64        `json:"microbatch,omitempty"`
	Links      []LinkCosts  `json:"links" most:"16384"`
	Resident   []int64      `json:"resident" whole:"the bytes of a rank" most:"16384"`
	Stages     []StageCosts `json:"stages" most:"16384"`
}
