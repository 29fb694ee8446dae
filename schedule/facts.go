package schedule

import (
	"errors"
	"fmt"
)

// ErrFacts is wrapped by errors about facts that do not fit a plan.
var ErrFacts = errors.New("schedule: invalid facts")

// MaxParts is the number of parts that a batch entry may have.
const MaxParts = 64

// Facts are what the lifetime pass must know of a stage. They come from the
// stage itself (package stages) or from a file.
type Facts struct {
	// Reads[kind] is the set of entry parts, one bit each, that an action of this
	// kind reads. A recompute is a read: a stage that recomputes in its backward
	// has the parts of its forward at B (or I) as well.
	Reads [NumKinds]uint64
	// Frozen stages have no weight gradients: in training they run I, not B, and
	// nothing at all where no stage before them trains.
	Frozen bool
	// Split stages run I and W apart where the plan has them apart.
	Split bool
	// Recomputes says that the backward runs the forward again.
	Recomputes bool
	// Quantizes says that the stage computes on copies of its weights, which QUANTIZE
	// makes once in a step.
	Quantizes bool
}

// checkFacts reports at once every fault of facts for this many stages and entry
// parts.
func checkFacts(facts []Facts, stages, parts int) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrFacts}, args...)...))
	}
	if len(facts) != stages {
		fault("there are facts of %d stages for a plan of %d", len(facts), stages)
	}
	if parts < 0 || parts > MaxParts {
		fault("an entry of %d parts: there may be 0 to %d", parts, MaxParts)
		return errors.Join(faults...)
	}
	for stage, f := range facts {
		for kind, reads := range f.Reads {
			if unknown := reads >> parts; parts < MaxParts && unknown != 0 {
				fault("stage %d reads a part at %v that an entry of %d parts does not have", stage, Kind(kind), parts)
			}
		}
	}
	return errors.Join(faults...)
}
