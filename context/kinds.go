package batchctx

import "github.com/weir-ml/weir/internal/frames"

// Pass says why a stage runs (L13).
type Pass = frames.Pass

// The passes. In Recompute whatever a stage records is discarded, and its
// scales and random draws are those of the first pass.
const (
	Train     = frames.Train
	Recompute = frames.Recompute
	Eval      = frames.Eval
)

// At is a set of kinds of action at which a stage reads an entry part.
type At = frames.At

// AtForward is F. AtBackward is B, or I where the plan splits. AtWeight is W, or
// B where it does not.
const (
	AtForward  = frames.AtForward
	AtBackward = frames.AtBackward
	AtWeight   = frames.AtWeight
)

// Taker names the action that takes what is saved.
type Taker = frames.Taker

// ByBackward is the stage's first backward action: B, or I where the plan splits. A
// recompute takes there too. ByWeight is the stage's W, or its B where the plan does not
// split.
const (
	ByBackward = frames.ByBackward
	ByWeight   = frames.ByWeight
)

// Contribution says how often a use of a parameter contributes to its gradient.
type Contribution = frames.Contribution

// Every microbatch contributes exactly once: the zero value. Sometimes a microbatch
// contributes, at most once each. Frozen parameters never do.
const (
	Every     = frames.Every
	Sometimes = frames.Sometimes
	Frozen    = frames.Frozen
)

// Write says how a stage must write a gradient.
type Write = frames.Write

// Skip: the parameter is frozen, and there is nothing to write. First: the gradient holds
// nothing yet and must be overwritten whole. Add: the gradient must be added to.
const (
	Skip  = frames.Skip
	First = frames.First
	Add   = frames.Add
)

// Use is one use of a parameter by a stage: its Name, its accumulator Grad, of float32
// and class Resident, owned by the trainer and unused where it is Frozen, how often
// it Contributes, and its Weight, which may be none: package stagetest moves weights to
// compare gradients with differences. Uses of a tied parameter share the name; each has an accumulator of its
// own (L9).
type Use[T any] = frames.Use[T]

// WeightCopy declares a copy of a weight on which a stage computes, made once in a step: the
// Name of the weight; whether the forward reads it or the backward (At is AtForward or
// AtBackward); and, as InputOnly, whether the backward reads it for the gradient of the
// stage's input alone. If the step does not need this gradient the copy is not made.
type WeightCopy = frames.WeightCopy

// Access is the set of the stage's slots, reads, losses, parameters and copies of weights
// that a call may reach: a decorator gives each child those of its own, numbered anew. A
// child with Discard saves nothing: what it saves is released at once. A child with Frozen
// has no W: what it saves for W its backward takes.
type Access = frames.Access

// Range is Count numbers from First on.
type Range = frames.Range
