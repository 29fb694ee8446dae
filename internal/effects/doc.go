// Package effects says what an action of a plan does to memory: in which place what it brings
// is held, and what ends behind it, in which order. The runner does it, on the buffers of a
// step; package layout does the same on the sizes of a profile, before the step.
//
// Allocations and releases within the call of a stage are not said here: the profile has them.
// An action of a rank goes so:
//
//  1. Where it Pulls, entries come, up to [Upto].
//  2. The action is done: the stage is called, or a transfer brings something.
//  3. What it hands over is held in the place To of Stage. A QUANTIZE hands over copies of
//     weights for the backward, too, which are held in BackwardWeights.
//  4. What is in the places Ends is released, place by place in the order of the constants.
//
// Inputs, gradients and saved state are a stage's for a microbatch, and so are what is sent
// and the outputs; copies of weights and gathered weights are a stage's alone.
//
// [Ties] says which uses of a parameter share one gradient, which both need as well.
package effects
