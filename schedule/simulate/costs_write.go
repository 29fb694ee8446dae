package simulate

import (
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/jsontext"
)

// costsSchema is the version of the file format.
const costsSchema = 1

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
// "far_latency", "far_per_mib", "replicas", "shard", "replica_latency", "replica_per_mib" and
// "microbatch" are omitted if they are 0, and so are all fields of a stage except "f". If the costs are invalid, the error wraps ErrCosts.
func WriteCosts(w io.Writer, c *Costs) error {
	if err := c.Validate(); err != nil {
		return err
	}
	file := costsFile{
		costsSchema, c.Unit, c.Scale, c.Latency, c.PerMiB, c.FarLatency, c.FarPerMiB,
		c.Replicas, c.Shard, c.ReplicaLatency, c.ReplicaPerMiB, c.Microbatch,
		append([]LinkCosts{}, c.Links...), append([]int64{}, c.Resident...), c.Stages,
	}
	if err := jsontext.Write(w, file); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// costsFile is the file format.
type costsFile struct {
	Schema         int          `json:"schema" whole:"the schema,1,1"`
	Unit           string       `json:"unit"`
	Scale          int64        `json:"scale"`
	Latency        int64        `json:"latency"`
	PerMiB         int64        `json:"per_mib"`
	FarLatency     int64        `json:"far_latency,omitempty"`
	FarPerMiB      int64        `json:"far_per_mib,omitempty"`
	Replicas       int          `json:"replicas,omitempty" whole:"the number of replicas,0,16384"`
	Shard          int          `json:"shard,omitempty" whole:"a shard level,0,3"`
	ReplicaLatency int64        `json:"replica_latency,omitempty"`
	ReplicaPerMiB  int64        `json:"replica_per_mib,omitempty"`
	Microbatch     int64        `json:"microbatch,omitempty"`
	Links          []LinkCosts  `json:"links" most:"16384"`
	Resident       []int64      `json:"resident" whole:"the bytes of a rank" most:"16384"`
	Stages         []StageCosts `json:"stages" most:"16384"`
}
