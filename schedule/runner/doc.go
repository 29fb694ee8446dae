// Package runner runs a plan: it calls stages in the plan's order, drops what the
// plan says dies, compares the books after every microbatch, and reduces losses
// and gradients once, at step end.
//
// A [Runner] belongs to one rank. Step(ctx, M, source) trains on M microbatches
// and returns a [Result]; Evaluate runs them forward only. M may differ from call
// to call. The runner asks the rule for a plan of M, adds the lifetimes that its
// stages declare, checks it, and keeps the last plan of each kind.
//
// The runner owns every handle between the calls of stages, and obeys: what dies
// where is in the plan's drop bits. It never guesses.
//
// # The end of a step
//
// In this order: what was never written is zeroed; uses of tied parameters are
// added in stage order; losses are merged over all ranks in one collective; the
// finite verdict, the gradient norm, the empty check; the Result. The optimizer is
// the trainer's: it takes the factor of the Result, once.
//
// # Every way out
//
// An error, a cancelled context, a panic of a stage: everything that the step
// held is released, and the next step works (L8). Errors are *[Error] and name
// rank, stage, microbatch and action. A panic is not recovered: it goes on with
// its own stack after everything is released.
package runner
