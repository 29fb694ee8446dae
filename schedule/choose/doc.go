// Package choose is for finding the schedule to train with, from measured costs and a memory
// limit.
//
// [Choose] makes a plan of every schedule that the ranks and stages allow, in the
// variants that it has (groups, caps), proves it, simulates it with the costs of the
// stages, and returns the fastest one that fits the memory, with the front of plans
// of which none is both faster and smaller. It guesses nothing: a plan that is not
// proven is not a candidate, and what was refused is listed with the reason.
//
// It also makes orders for the costs: by list scheduling after the heuristic of the
// zero-bubble paper, and from the schedules by name; and moves the tasks of the best of
// them to and fro in time as long as that helps. For a long step an order of fewer
// microbatches is found and stretched. An order is a candidate like any other: lowered, proven, simulated.
//
// If there is far memory, the fastest plans are tried again with the saved state of some of their
// stages offloaded.
//
// The costs decide. Which schedule is best is a matter of the hop's latency, of the
// memory, and of how far I, W and F differ; there is no rule of thumb here.
package choose
