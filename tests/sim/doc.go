// Package sim simulates the runtime. The ranks of a step, their links, sources, stages, hooks and
// memory are the real ones. At every point at which a rank could be delayed, a seed decides which
// rank continues and whether a fault occurs. One rank runs at a time, in a bubble of
// testing/synctest whose clock advances when no rank can continue, so every run can be replayed.
//
// A Scenario is one run: a model, a plan, replicas, some steps and their faults. The goroutines on
// which a rank reduces gradients and gathers weights take turns like ranks. After each step the
// suite compares numbers, errors and books with the expected ones. A violation is printed with
// its seed and with the smallest scenario that shows it.
//
// A Job is a run over transport/tcp and a network in memory.
package sim
