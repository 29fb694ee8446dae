package schedule

import "errors"

// ErrStageInfo is wrapped by errors about facts that do not fit a plan.
var ErrStageInfo = errors.New("schedule: invalid stage information")

// MaxParts is the maximum number of parts in a batch entry.
const MaxParts = 64

// StageInfo holds the properties of a stage that the lifetime pass needs. They come from the stage itself
// (package stages) or from a file.
type StageInfo struct {
	// Reads[kind] is the set of entry parts, one bit each, that an action of this kind reads. This
	// includes recomputation: the B (or I) of a stage that recomputes also reads the parts that its
	// forward reads.
	Reads [NumKinds]uint64
	// Frozen stages have no weight gradients. In training they run I instead of B, or no backward
	// if all stages before them are frozen too.
	Frozen bool
	// Split stages run I and W as separate actions if the plan contains them.
	Split bool
	// Recomputes is set if the backward runs the forward again.
	Recomputes bool
	// Quantizes is set if the stage computes with copies of its weights, which QUANTIZE makes once
	// per step.
	Quantizes bool
}
