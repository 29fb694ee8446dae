// Package repeats skips the repeats of a machine.
//
// A machine runs actions and keeps a state: sets of microbatches and other numbers. A period is a
// part of its run. If the state after a period equals the state before it with all microbatches
// shifted, the next period runs the same actions, shifted again, because the state alone determines
// the run. So any number of periods can be skipped at once by shifting the state. This holds until
// a moving value reaches a fixed bound, such as the end of a segment or the edge of a set.
//
// The result is exact: a skipped period has the same effect as a period that is run.
package repeats
