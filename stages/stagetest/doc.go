// Package stagetest is the conformance suite for authors of stages: it checks a stage against
// the contract of package stages.
//
// A test passes [Run] a function that makes the stage and describes how to make its inputs. If
// the stage has inputs or outputs, the suite puts it between two tiny stages. It runs the stage
// in the real runner: depth first and breadth first, in training and evaluation, on one
// microbatch and on several uneven ones, frozen, recomputed, with a split backward, canceled at
// every action, and with failing calls of Save. It finds faults that a training run would show late
// or never: references that are kept, arguments that are changed, gradients that are
// overwritten, and numbers that depend on the order of microbatches.
//
// [Check] is Run without package testing. Every [Fault] has a [Code] and one sentence with the
// fault and its remedy. If the results of a stage depend on the order of microbatches, further
// checks of its numbers are meaningless, so the suite stops at the first group of checks that
// finds a fault.
//
// With Subject.Read and Subject.Write the suite compares gradients with central differences of
// the losses, along directions of every weight (batchctx.Use.Weight) and every input, at
// weights and seeds other than 1. This detects a term that is added twice, a missing seed or
// coefficient, or a factor of 1.01. A stage in FP8 needs a second Run for this, on an [Exact].
package stagetest
