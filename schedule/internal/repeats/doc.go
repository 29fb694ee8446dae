// Package repeats skips the repeats of a machine that runs the actions of a plan.
//
// The state of a machine consists of sets of microbatches and of other numbers, and determines the
// rest of the run. A period is a part of the run. Suppose that over a period, each number and each
// edge of a set either does not change or moves with the microbatches of the actions. Then the next
// period runs the same actions, later by the same number of microbatches, until a moving value meets
// a constant one, such as the end of a segment or an edge of a set. All periods until then can be skipped in one step,
// because the state changes by the same deltas in each.
//
// The result is exact: skipping a period has the same effect as running it. The documentation of
// package passes contains the proof.
//
// An [Engine] detects such periods; a [Sets] contains the sets of microbatches of its machine, and
// computes when one of their edges is met. A [Trend] detects periods of a machine that has no sets,
// and whose numbers change by different amounts, such as the clocks of a simulation. Both read the
// numbers through the interface [Machine].
package repeats
