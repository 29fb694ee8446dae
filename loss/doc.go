// Package loss declares the losses of a step and computes their totals. It stores losses as numbers
// that do not refer to a tensor, and reduces them once, when the step ends.
//
// A stage declares a [Def] (stages.Decl.Loss) and a trainer reads the totals of a step from the runner's
// Result; only the runner uses a [Ledger].
//
// A stage reports a loss as two numbers for each microbatch: an unnormalized sum, and a weight (for
// instance a number of tokens). Nothing in this package accepts a tensor, a closure over one, or an
// interface that could hide one, so a recorded loss keeps neither its graph nor its activations alive
// (L3). The state is one [Cell] of fixed size for each [Def], regardless of the number of microbatches
// (L7).
//
// A device that queues its work adds the two numbers to a cell in its own memory ([DeviceCells]). The
// runner reads the cell once, when the step ends, and adds it to the [Ledger].
//
// Sums and weights are kept separate until the end (L10): if microbatches differ in length, the mean of
// their means is not the mean of the step, and the difference does not average out. [Exact] adds both
// without rounding, so the order of microbatches, their distribution over ranks and the schedule do not
// change a single bit of the result (L9).
//
// One step with one rank:
//
//	ledger.Reset()
//	for each microbatch mb { ledger.Record(def, mb, sum, weight) }
//	err := ledger.Finish(&record)
//	totals, err := ledger.Totals(&record)
//
// With several ranks, all records are merged between Finish and Totals. This is the step's only
// collective, and it gives every rank the same [Totals], including the same [Outcome].
//
// The types of this package are not safe for concurrent use. Each rank has its own Ledger.
package loss
