// Package loss declares the losses of a step and computes their totals: it stores losses as
// numbers without reference to a tensor, and reduces them once, when the step ends.
//
// A stage reports a loss as two numbers for each microbatch: an unnormalised sum, and a weight
// (for instance a number of tokens). Nothing in this package accepts a tensor, a closure over
// one, or an interface that could hide one, so a recorded loss keeps neither its graph nor its
// activations alive (L3). The state is one [Cell] for each [Def], of fixed size, whatever the
// number of microbatches (L7).
//
// A device that queues its work adds the two numbers to a cell of its own instead ([Cells]),
// which is read once and added to the [Ledger] when the step ends.
//
// Sums and weights are separate until the end (L10). The mean of the microbatches' means is a
// different number if microbatches differ in length, and the difference does not average out.
// Both are summed by [Exact], without rounding, so the order of microbatches, the split over
// ranks and the schedule cannot change a single bit of the result (L9).
//
// One step with one rank:
//
//	ledger.Reset()
//	for each microbatch mb { ledger.Record(def, mb, sum, weight) }
//	err := ledger.Finish(&record)
//	totals, err := ledger.Totals(&record)
//
// With several ranks, the [Record] of each rank is replaced by the merge of all records in
// between. This is the step's only collective, and it gives every rank the same [Totals],
// including the same [Outcome].
//
// The types of this package are not safe for concurrent use. Each rank has its own Ledger.
package loss
