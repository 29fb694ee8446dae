package frames

import (
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// Pass says why a stage runs (L13).
type Pass uint8

// The passes. In Recompute whatever a stage records is discarded, and its
// scales and random draws are those of the first pass.
const (
	Train Pass = iota
	Recompute
	Eval
)

// String returns the name in lower case.
func (p Pass) String() string { return [...]string{"train", "recompute", "eval"}[p] }

// Call is the kind of action that a view is made for: None is outside of any.
type Call = schedule.Kind

// The calls of a stage.
const (
	None             = schedule.None
	InForward        = schedule.F
	InBackward       = schedule.B
	InBackwardInput  = schedule.I
	InBackwardWeight = schedule.W
)

// At is a set of kinds of action at which a stage reads an entry part.
type At uint8

// AtForward is F. AtBackward is B, or I where the plan splits. AtWeight is W, or
// B where it does not.
const (
	AtForward At = 1 << iota
	AtBackward
	AtWeight
)

// String names the constants, as a stage writes them.
func (a At) String() string {
	var names []string
	for i, name := range [...]string{"AtForward", "AtBackward", "AtWeight"} {
		if a>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// AtCall returns the reads of a call.
func AtCall(c Call) At {
	switch c {
	case InForward:
		return AtForward
	case InBackward:
		return AtBackward | AtWeight
	case InBackwardInput:
		return AtBackward
	case InBackwardWeight:
		return AtWeight
	}
	return 0
}

// Taker names the action that takes what is saved.
type Taker uint8

const (
	// ByBackward is the stage's first backward action: B, or I where the plan
	// splits. A recompute takes there too.
	ByBackward Taker = iota
	// ByWeight is the stage's W, or its B where the plan does not split.
	ByWeight
)

// String names the constant.
func (t Taker) String() string { return [...]string{"ByBackward", "ByWeight"}[t] }

// TakenIn reports whether a call is the taker.
func (t Taker) TakenIn(c Call) bool {
	return c == InBackward || t == ByBackward && c == InBackwardInput || t == ByWeight && c == InBackwardWeight
}

// Contribution says how often a use of a parameter contributes to its gradient.
type Contribution uint8

const (
	// Every microbatch contributes exactly once. It is the zero value.
	Every Contribution = iota
	// Sometimes a microbatch contributes, at most once each.
	Sometimes
	// Frozen parameters never do.
	Frozen
)

// Write says how a stage must write a gradient.
type Write uint8

const (
	// Skip: the parameter is frozen; there is nothing to write.
	Skip Write = iota
	// First: the gradient holds nothing yet and must be overwritten whole.
	First
	// Add: the gradient must be added to.
	Add
)

// Use is one use of a parameter by a stage. Uses of a tied parameter share
// the name; each has an accumulator of its own (L9).
type Use[T any] struct {
	Name        string
	Grad        T // float32 accumulator of class Resident, owned by the trainer; unused where Frozen
	Contributes Contribution
	// Weight is the weight itself, with as many elements as Grad, owned by the trainer. It may
	// be none: it is for those that move weights, not for the step.
	Weight T
}

// Read declares that a stage reads an entry part, and when. Zero At is AtForward.
type Read struct {
	Part int // index into the entry's parts
	At   At
}

// When returns At, AtForward for its zero value.
func (r Read) When() At {
	if r.At == 0 {
		return AtForward
	}
	return r.At
}

// Declaration is what a stage declares that it needs to be held. Losses
// maps the stage's own numbering of losses, whose names are LossNames, to the ledger's.
type Declaration[T any] struct {
	Name    string
	Inputs  int // tensors
	Outputs int
	Slots   []string // places to save in
	Reads   []Read
	Losses  []int
	// LossNames has a name for each of Losses.
	LossNames []string
	Params    []Use[T]
	// WeightCopies are what QUANTIZE makes.
	WeightCopies []WeightCopy
	// InputGradient says that the step needs the gradient of the stage's input.
	InputGradient bool
	// Recomputes says that its backward runs the forward again.
	Recomputes bool
}
