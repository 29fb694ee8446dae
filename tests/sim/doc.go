// Package sim simulates the runtime. The ranks of a step, their links, sources, stages, hooks and
// memory are the real ones. At every point at which a rank could be delayed, a seed decides which
// rank continues and whether a fault occurs. One rank runs at a time, in a bubble of
// testing/synctest whose clock advances when no rank can continue, so every run can be replayed.
//
// A Scenario is one run: a model, a plan, replicas, some steps and their faults. The goroutines on
// which a rank reduces gradients and gathers weights take turns like ranks. After each step the
// suite compares numbers, errors and books with the expected ones. It prints a violation with
// its seed and with the smallest scenario that it finds to show the violation.
//
// A Job is a run over transport/tcp and a network in memory, which may heal at a random time after the
// first fault.
//
// Marks name rare states, such as an abort during another abort. The suite observes them in its hooks,
// transports and network. A sweep prints how often it has reached each state, and a long sweep fails if it
// has never reached one. A step must end within a bounded virtual time after its last fault.
package sim
