package batchctx

import "github.com/weir-ml/weir/internal/engine/frames"

// Pass is the reason a stage runs (L13).
type Pass = frames.Pass

// The passes. In Recompute all records of a stage are discarded, and its scales and random draws
// are the same as in the first pass.
const (
	Train     = frames.Train
	Recompute = frames.Recompute
	Eval      = frames.Eval
)

// At is a set of kinds of action in which a stage reads an entry part.
type At = frames.At

// AtForward is F. AtBackward is B, or I if the plan splits the backward. AtWeight is W, or B if the plan
// does not split the backward.
const (
	AtForward  = frames.AtForward
	AtBackward = frames.AtBackward
	AtWeight   = frames.AtWeight
)

// Consumer is the action that takes a saved tensor.
type Consumer = frames.Consumer

// ByBackward is the stage's first backward action: B, or I if the plan splits the backward. A recompute is
// part of this action and takes its tensors there too. ByWeight is the stage's W, or its B if the plan does
// not split the backward. ByBoth is both halves of a split backward: I and then W take one saved tensor.
const (
	ByBackward = frames.ByBackward
	ByWeight   = frames.ByWeight
	ByBoth     = frames.ByBoth
)

// Contribution says how often a use of a parameter contributes to its gradient.
type Contribution = frames.Contribution

// Every, the zero value, means that each microbatch contributes exactly once. Sometimes means that a
// microbatch contributes at most once. Frozen means that no microbatch contributes.
const (
	Every     = frames.Every
	Sometimes = frames.Sometimes
	Frozen    = frames.Frozen
)

// Write says how a stage must write a gradient.
type Write = frames.Write

// Skip means that the parameter is frozen, so there is nothing to write. First means that the gradient
// has no value yet and must be overwritten completely. Add means that the stage must add to the gradient.
const (
	Skip  = frames.Skip
	First = frames.First
	Add   = frames.Add
)

// Use is one use of a parameter by a stage. The trainer owns Grad and Weight. The uses of a tied parameter
// have the same size, and all but one of them set Tied, because two parameters must not have the same name. At step end
// every accumulator holds the total of all uses (L9).
type Use[T any] struct {
	Name        string       // of the parameter; the uses of a tied parameter share it
	Tied        bool         // another use of the parameter may have the same name
	Grad        T            // float32 accumulator of class Resident; unused if Frozen
	Contributes Contribution // how often the use contributes to Grad
	// Weight is the weight, which Microbatch.Weight returns. It may be unset if the stage does not ask for
	// it and there is only one replica; package stagetest then cannot compare the gradient with finite
	// differences, for which it changes the weight.
	Weight   T
	Elements int // the number of elements of the whole parameter, if Grad or Weight is one replica's range
}

// WeightCopy declares a copy of a weight that a stage computes with. QUANTIZE makes the copy once per
// step, and the step holds it until the plan drops it. Copies for the forward and for the backward are
// dropped separately.
type WeightCopy struct {
	Name string // of the weight
	At   At     // the pass that reads the copy: AtForward or AtBackward
	// InputOnly means that the backward reads the copy only for the gradient of the stage's input. A step
	// that does not need this gradient does not make the copy.
	InputOnly bool
}

// Access is the set of a stage's declarations that a call may reach. A decorator gives each child its own
// set, numbered from 0.
type Access struct {
	Slots   Range // for saved tensors
	Reads   Range // of entry parts
	Losses  Range
	Params  Range // uses of parameters
	Copies  Range // of weights
	Pass    Pass  // why the stage runs
	Discard bool  // the child saves nothing: its saved tensors are released immediately
	Frozen  bool  // the child has no W: its backward takes the tensors saved for W
}

// Range is a range of consecutive numbers. Its fields are:
//
//	First int
//	Count int
type Range = frames.Range
