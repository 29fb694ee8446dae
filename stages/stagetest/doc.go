// Package stagetest is for the author of a stage: it holds the stage to the contract of
// package stages.
//
// A test hands [Run] a function that makes the stage and says how to make its
// inputs. The suite puts the stage between two tiny stages of its own where it
// has inputs and outputs, and drives it through the real runner: depth first and
// breadth first, training and evaluation, one microbatch and several uneven ones,
// frozen, recomputed, with a split backward, cancelled at every action, with
// errors from the context. It finds what a training run would show late or never:
// references that are kept, arguments that are changed, gradients that are
// overwritten, numbers that depend on the order of microbatches.
//
// [Check] is Run without package testing. Every [Fault] has a [Code] and one
// sentence that says what is wrong and how to put it right. Questions about a
// stage whose results depend on the order of microbatches would mean nothing, so the
// suite stops at the first group of checks that finds something.
//
// With Subject.Read and Subject.Write the suite compares gradients with central differences
// of the losses, along directions of every weight (batchctx.Use.Weight) and every input, at
// weights and seeds that are not 1: a term that is there twice, a seed or a coefficient that
// was forgotten, a factor of 1.01.
package stagetest
