// Package repeats skips the repeats of a machine that runs the actions of a plan.
//
// The state of a machine consists of sets of microbatches and of other numbers, and determines the
// rest of the run. A period is a part of the run. If the state after a period equals the state before
// it except that microbatches are shifted, the next period runs the same actions for microbatches
// shifted once more. Any number of periods can then be skipped at once by shifting the state. This
// holds until a moving value meets a constant one, such as the end of a segment or the edge of a set.
//
// The result is exact: skipping a period has the same effect as running it. The documentation of
// package passes contains the proof.
//
// An [Engine] detects periods of a machine whose values all move with its microbatches. A [Trend]
// detects periods of a machine whose values change by different constants, such as clocks. Both read
// the state through the interface [Machine]; a [Sets] contains the sets of microbatches.
package repeats
