package frames

import (
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// Pass is the reason a stage runs (L13).
type Pass uint8

// The passes. In Recompute all records of a stage are discarded, and its scales and random draws
// are the same as in the first pass.
const (
	Train Pass = iota
	Recompute
	Eval
)

// String returns the name in lower case.
func (p Pass) String() string { return [...]string{"train", "recompute", "eval"}[p] }

// Call is the kind of action for which a view is made. None means no action.
type Call = schedule.Kind

// The kinds of stage call.
const (
	None             = schedule.None
	InForward        = schedule.F
	InBackward       = schedule.B
	InBackwardInput  = schedule.I
	InBackwardWeight = schedule.W
)

// At is a set of kinds of action in which a stage reads an entry part.
type At uint8

// AtForward is F. AtBackward is B, or I if the plan splits the backward. AtWeight is W, or B if the plan
// does not split the backward.
const (
	AtForward At = 1 << iota
	AtBackward
	AtWeight
)

// String returns the names of the constants in the set.
func (a At) String() string {
	var names []string
	for i, name := range [...]string{"AtForward", "AtBackward", "AtWeight"} {
		if a>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// AtCall returns the reads that a call may make.
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

// Consumer is the action that takes a saved tensor.
type Consumer uint8

const (
	// ByBackward is the stage's first backward action: B, or I if the plan splits the backward. A
	// recompute takes it there too.
	ByBackward Consumer = iota
	// ByWeight is the stage's W, or its B if the plan does not split the backward.
	ByWeight
	// ByBoth is both: I lends the tensor and keeps it for W.
	ByBoth
)

// String names the constant.
func (t Consumer) String() string {
	return [...]string{"ByBackward", "ByWeight", "ByBackward, ByWeight"}[t]
}

// TakenIn reports whether c is the consumer's call.
func (t Consumer) TakenIn(c Call) bool {
	return c == InBackward || t != ByWeight && c == InBackwardInput || t != ByBackward && c == InBackwardWeight
}

// keptIn reports whether a tensor that c takes is also for a later call.
func (t Consumer) keptIn(c Call) bool { return t == ByBoth && c == InBackwardInput }

// Contribution says how often a use of a parameter contributes to its gradient.
type Contribution uint8

const (
	// Every means that each microbatch contributes exactly once. It is the zero value.
	Every Contribution = iota
	// Sometimes means that a microbatch contributes at most once.
	Sometimes
	// Frozen means that no microbatch contributes.
	Frozen
)

// Write says how a stage must write a gradient.
type Write uint8

const (
	// Skip means that the parameter is frozen, so there is nothing to write.
	Skip Write = iota
	// First means that the gradient has no value yet and must be overwritten completely.
	First
	// Add means that the stage must add to the gradient.
	Add
)

// Use is one use of a parameter by a stage, with the fields of batchctx.Use.
type Use[T any] struct {
	Name        string
	Tied        bool
	Grad        T
	Contributes Contribution
	Weight      T
	Elements    int
}

// Read declares that a stage reads an entry part in the actions in At. A zero At means AtForward.
type Read struct {
	Part int // index into the entry's parts
	At   At
}

// When returns At, or AtForward if At is zero.
func (r Read) When() At {
	if r.At == 0 {
		return AtForward
	}
	return r.At
}

// Declaration describes the tensors of a stage that the frames hold, and the rules for them.
type Declaration[T any] struct {
	Name      string
	Inputs    int // number of input tensors
	Outputs   int
	Slots     []string   // names of the slots for saved tensors
	Consumers []Consumer // of the first slots, for Save in a forward; ByBackward for the others
	Reads     []Read
	Losses    []int // the number of each of the stage's losses in the ledger
	// LossNames holds the names of Losses, in the same order.
	LossNames []string
	Params    []Use[T]
	// WeightCopies lists the copies that QUANTIZE makes.
	WeightCopies []WeightCopy
	// InputGradient is set if the step needs the gradient of the stage's input.
	InputGradient bool
	// Recomputes is set if the stage's backward runs the forward again.
	Recomputes bool
}
