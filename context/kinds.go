package batchctx

import "github.com/weir-ml/weir/internal/frames"

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

// Taker is the action that takes a saved tensor.
type Taker = frames.Taker

// ByBackward is the stage's first backward action: B, or I if the plan splits the backward. A recompute
// takes it there too. ByWeight is the stage's W, or its B if the plan does not split the backward. ByBoth
// is both halves of a split backward: I and then W take one saved tensor.
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

// Use is one use of a parameter by a stage. The uses of a tied parameter share its Name and its size, and
// all but one of them set Tied, because two parameters may not have one name. Each use has its own
// accumulator, and at step end every accumulator holds the total of all uses (L9).
//
// Grad is the accumulator, in float32 and of class Resident. The trainer owns it, and it is unused
// if the parameter is Frozen. Contributes says how often the use contributes to it.
//
// Microbatch.Weight returns Weight to the stage. Weight may be unset if the stage does not ask for it and
// there is only one replica; package stagetest then cannot compare the gradient with finite differences,
// for which it changes the weight. Elements is the number of elements of the whole parameter if Grad or
// Weight holds only one replica's range.
type Use[T any] = frames.Use[T]

// WeightCopy declares a copy of a weight that a stage computes with. QUANTIZE makes the copy once per
// step. Name is the weight's name. At is the pass that reads the copy: AtForward or AtBackward. InputOnly
// declares that the backward reads the copy only for the gradient of the stage's input; a step that does
// not need this gradient does not make the copy.
type WeightCopy = frames.WeightCopy

// Access is the set of the stage's slots, reads, losses, parameters and copies of weights that a call may
// reach. A decorator gives each child its own set, numbered from 0. A child with Discard saves nothing:
// its saved tensors are released at once. A child with Frozen has no W: its backward takes the tensors
// saved for W.
type Access = frames.Access

// Range is a range of Count consecutive numbers that starts at First.
type Range = frames.Range
