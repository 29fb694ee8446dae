// Package simulate predicts the step of a plan from the costs of its actions: its makespan and
// span, the waits of each rank, and the live bytes.
//
// [Run] returns the [Report] of a plan under [Costs], which [ReadCosts] reads from a file; [Timeline] also
// visits every action with its times. A search that simulates one plan many times uses an [Evaluator].
package simulate
