// Package sim simulates the runtime: the ranks of a step, their links, sources, stages, hooks
// and memory are the real ones, and a seed decides which rank continues at every point where
// one could be delayed, and what fails. One rank runs at a time, in a bubble of
// testing/synctest whose clock advances when no rank can continue, so that every run can be
// replayed.
//
// A Scenario is one run: a model, a plan, replicas, some steps and their faults. The goroutines on
// which a rank reduces gradients and gathers weights take turns like ranks. After each step the
// suite compares numbers, errors and books with the expected ones. A violation is printed with
// its seed and with the smallest scenario that shows it.
//
// A Job is a run over transport/tcp and a network in memory.
package sim
