// Package sim simulates the runtime: the ranks of a step, their links, sources, stages,
// hooks and memory are the real ones, and a seed decides which rank goes on at every point
// where one could be held up, and what fails. One rank runs at a time, in a bubble of
// testing/synctest whose clock moves when none can go on, so that every run replays.
//
// A Scenario is one run: a model, a plan, some steps and the faults in them. After each
// step the suite compares numbers, errors and books with what they must be. A violation is
// printed with its seed and with the smallest scenario that shows it.
//
// A Job is a run over transport/tcp and a network in memory.
package sim
