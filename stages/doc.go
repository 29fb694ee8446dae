// Package stages is for writing the stages of a model: it defines a pipeline stage, and
// decorates and joins stages.
//
// A [Stage] computes forward and backward over handles of the embedder's own
// type T. It declares what it needs in a [Spec], once; abilities that not every
// stage has are separate interfaces ([Trainable], [SplitBackward], [Quantizer]),
// found through decorators by [As] where they are of no microbatch.
//
// # Contract
//
//   - Arguments are borrowed: a stage must not release them, and keeps or returns
//     one only after Retain.
//   - What a stage puts into out or gradIn is handed over. After an error the
//     runner takes back what is there.
//   - A call of the microbatch that fails does not return: it unwinds to the runner, which
//     ends the step. Deferred calls run; a lock that is taken without a deferred
//     unlock stays held. The error that a stage returns is for failures of its own, as is
//     Microbatch.Check.
//   - A microbatch is for the goroutine of the call.
//   - What a later action needs goes through Save, and comes back through Take.
//     A stage has no fields that differ from microbatch to microbatch.
//   - A forward must not depend on the order of microbatches; a backward adds to
//     gradients only through Grad (L5, L9).
//   - In a Recompute pass a stage does again exactly what it did in Train. In Eval
//     what it saves ends at once: nothing would take it.
//   - A workspace is allocated and released within the call.
//   - Copies of weights in low precision are made by QuantizeWeights, once in a step,
//     and kept nowhere: a call borrows them from Microbatch.WeightCopy (L14).
//   - A value that skips stages is relayed: every stage between declares it as an
//     input and an output and returns it retained.
//
// [Decl] declares by name what a stage needs, and makes a stage of closures.
// [Func], [Sequential], [Recompute], [Freeze] and [Relay] make stages from parts. The
// conformance suite in stages/stagetest holds a stage to this contract.
package stages
