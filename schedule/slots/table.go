package slots

import (
	"errors"
	"io"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
)

var (
	// ErrTable is wrapped by errors about a file of slots.
	ErrTable = errors.New("slots: invalid file")
	// ErrPlan is wrapped by errors about plans that cannot have slots, or cannot have them in one table.
	ErrPlan = errors.New("slots: the plan has no slots")
)

// Tensor is a kind of tensor.
type Tensor string

// The kinds of tensor, in the order of a table.
const (
	Received  Tensor = "received"
	Saved     Tensor = "saved"
	Outputs   Tensor = "outputs"
	Gradients Tensor = "gradients"
)

// Tensors returns all kinds of tensor.
func Tensors() []Tensor { return []Tensor{Received, Saved, Outputs, Gradients} }

// Direction is the direction of a tensor through the stages.
type Direction string

// The directions. Saved state is forward.
const (
	Forward  Direction = "forward"
	Backward Direction = "backward"
)

// Pooling determines which tensors share a pool.
type Pooling string

// The poolings, from the most pools to the fewest.
const (
	ByStage     Pooling = "stage"     // a pool for each stage and direction
	ByDirection Pooling = "direction" // a pool for each direction
	ByRank      Pooling = "rank"      // one pool
)

var poolings = []Pooling{ByStage, ByDirection, ByRank}

// Hold determines how long a stage holds its inputs and the gradients of its outputs.
type Hold string

// The values of Hold.
const (
	Taken Hold = "taken" // until the computation that takes it
	Last  Hold = "last"  // until the stage's last computation for the microbatch
)

// Table holds the slots of one or more plans that exclude each other.
type Table struct {
	Schema   int       `json:"schema"` // 1
	Hold     Hold      `json:"hold"`
	Pooling  Pooling   `json:"pooling"`
	Pools    []Pool    `json:"pools"`
	Counts   []Count   `json:"counts"`
	Variants []Variant `json:"variants"`
}

// Pool is a set of slots of a rank.
type Pool struct {
	Rank      int       `json:"rank"`
	Tensor    Tensor    `json:"tensor"`
	Stage     *int      `json:"stage,omitempty"`     // nil if all stages share the pool
	Direction Direction `json:"direction,omitempty"` // "" if both directions share the pool
	Slots     int       `json:"slots"`               // the maximum of the variants
}

// Count holds the numbers of slots of a rank for a kind of tensor, in each pooling. It is the sum over
// the pools, each with the maximum of the variants.
type Count struct {
	Rank        int    `json:"rank"`
	Tensor      Tensor `json:"tensor"`
	ByStage     int    `json:"by_stage"`
	ByDirection int    `json:"by_direction"`
	ByRank      int    `json:"by_rank"`
}

// Variant is a plan and its slots.
type Variant struct {
	Plan         string        `json:"plan"` // its name
	Mode         string        `json:"mode"` // schedule.Mode of the plan
	Microbatches int           `json:"microbatches"`
	Sends        int           `json:"sends,omitempty"` // see LeastSends; 0 if it was not computed
	Assignments  []*Assignment `json:"assignments"`
}

// Assignment assigns the tensors of a pool to slots.
type Assignment struct {
	Pool  int   `json:"pool"`  // the index in Table.Pools
	Slots int   `json:"slots"` // of the variant
	At    int64 `json:"at"`    // the position of an action of the rank at which as many tensors are alive as there are slots
	Runs  []Run `json:"runs"`
}

// Run assigns Count microbatches of a stage: microbatch Microbatch + k·Stride has slot Slots[k mod len(Slots)].
type Run struct {
	Stage      int       `json:"stage"`
	Direction  Direction `json:"direction"`
	Microbatch int       `json:"microbatch"`
	Stride     int       `json:"stride"`
	Count      int       `json:"count"`
	Slots      []int     `json:"slots"`
}

var form = jsonfile.Form{Kind: ErrTable, Package: "slots", Content: "the slots", Schema: 1, Bytes: 64 << 20, Values: 1 << 22}

// Write writes a table as JSON.
func Write(w io.Writer, t *Table) error { return jsonfile.Write(w, t) }

// Read reads the output of Write. Errors wrap ErrTable and contain the location. The table may be wrong;
// Verify compares it with its plans.
func Read(r io.Reader) (*Table, error) {
	t := &Table{}
	return t, form.Read(r, t, &t.Schema)
}

// Change is a pool whose number of slots differs between two tables. A table without the pool has 0.
type Change struct {
	Pool     // of either table
	Was, Now int
}

// Compare returns the pools whose numbers of slots differ: first those of now, and then those that only was has, each in
// the order of its table.
func Compare(was, now *Table) (changes []Change) {
	type key struct {
		rank, stage int
		tensor      Tensor
		direction   Direction
	}
	of := func(p Pool) key {
		k := key{p.Rank, -1, p.Tensor, p.Direction}
		if p.Stage != nil {
			k.stage = *p.Stage
		}
		return k
	}
	old := map[key]int{}
	for _, p := range was.Pools {
		old[of(p)] = p.Slots
	}
	for _, p := range now.Pools {
		if n := old[of(p)]; n != p.Slots {
			changes = append(changes, Change{p, n, p.Slots})
		}
		delete(old, of(p))
	}
	for _, p := range was.Pools {
		if n, gone := old[of(p)]; gone && n > 0 {
			changes = append(changes, Change{p, n, 0})
		}
	}
	return changes
}
