// Package stages defines pipeline stages, and decorates and combines them.
//
// A [Stage] computes a forward and a backward over handles of the embedder's own type T. It declares its
// needs in a [Spec], once. Optional abilities are separate interfaces ([Trainable], [SplitBackward],
// [Quantizer]); [As] finds them through decorators; a decorator must implement SplitBackward itself.
//
// Begin with a [Decl]: it declares the needs of a stage by name, and makes a stage from two closures.
// [Func], [Sequential], [Recompute], [Freeze] and [Identity] make stages from parts. The conformance suite
// in stages/stagetest checks a stage against the contract.
//
// # Contract
//
//   - Arguments are borrowed: a stage must not release them, and must Retain an argument to keep or
//     return it.
//   - The runner takes over the tensors in out and gradIn. After an error it releases
//     them.
//   - A call on the microbatch that fails does not return: it unwinds to the runner, which ends the step.
//     Deferred calls run; a lock without a deferred unlock stays locked. A stage returns an error, or
//     calls Microbatch.Check, only for its own failures.
//   - A microbatch may be used only by the goroutine of the call.
//   - Save stores tensors for a later action, which gets them with Take. A stage must not store anything
//     about a microbatch in its fields.
//   - A forward must not depend on the order of microbatches; a backward adds to
//     gradients only through Grad (L5, L9).
//   - In a Recompute pass a stage repeats exactly the operations of the Train pass. In Eval,
//     saved tensors are released immediately, because no action takes them.
//   - A workspace is allocated and released within the call.
//   - QuantizeWeights makes low-precision copies of weights, once per step. A stage does not keep them: a
//     call borrows them with Microbatch.WeightCopy (L14).
//   - A value that skips stages is relayed: every stage in between declares it as an input and an output
//     and returns it after Retain.
package stages
