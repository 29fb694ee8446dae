// Package loss is for declaring the losses of a step and reading their totals: it turns losses
// into numbers that hold no tensor, and reduces them once, when the step ends.
//
// A stage reports a loss as two numbers for each microbatch: a sum that is not
// normalised, and a weight (the tokens it counted, say). Nothing in this
// package accepts a tensor, a closure over one, or an interface that could hide
// one, so a recorded loss keeps neither its graph nor its activations alive
// (L3). The state is one [Cell] for each [Def], of fixed size, whatever the
// number of microbatches (L7).
//
// A device whose work is queued adds the two numbers to its own cell instead ([Cells]),
// which is read once and joined to the [Ledger] when the step ends.
//
// Sums and weights are kept apart until the end (L10). A mean of the means of
// microbatches is a different number as soon as microbatches differ in length,
// and the difference does not average out. Both are summed by [Exact], without
// rounding, so the order of microbatches, the split over ranks and the schedule
// cannot change a single bit of the result (L9).
//
// One step with one rank:
//
//	ledger.Reset()
//	for each microbatch mb { ledger.Record(def, mb, sum, weight) }
//	err := ledger.Finish(&record)
//	totals, err := ledger.Totals(&record)
//
// With several ranks, this rank's [Record] becomes the merge of everyone's in
// between; that is the step's only collective, and it gives every rank the same
// [Totals], the same [Outcome] included.
//
// The types of this package are not safe for concurrent use. A rank has its own
// Ledger.
package loss
