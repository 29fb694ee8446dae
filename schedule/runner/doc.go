// Package runner trains: it runs a plan, calls stages in its order, releases buffers as the plan
// says, compares the books after every microbatch, and reduces losses and gradients once, at step
// end.
//
// A [Runner] has the ranks of its process. Step(ctx, M, source) trains on M microbatches and
// returns a [Result]; Evaluate runs them forward only. M may differ from call to call. The runner
// asks the schedule for a plan of M, or takes Plan.Fixed, adds transfers if there are several
// ranks and the lifetimes that its stages declare, checks it, and keeps the last plan of each
// mode.
//
// The runner owns every handle between the calls of stages, and follows the plan: the drop bits
// determine what is released after each action, and package effects the order. The runner decides
// nothing itself.
//
// # Several ranks
//
// Each rank has its own space. If the process has several ranks, each has its own goroutine, and
// [local.Links] join them; Config.Stages lists the stages of all ranks. A [transport.Transport]
// from the embedder joins ranks in other processes (World); package transporttest tests its
// contract.
//
// Ownership between ranks (L4):
//
//   - A tensor that a stage returns for another rank is held in the outbox of its rank's frames,
//     unchanged, from the F, B or I that made it to the WAIT of its transfer. A send
//     lends it.
//   - A receive hands over copies in buffers of the receiver's own space, of class
//     Transfer, which are released like tensors returned by a stage of the rank. No handle
//     crosses a rank.
//   - Every rank asks its source for every microbatch, in the order of the batch; parts that no
//     stage of the rank reads are released at once. If a plan runs several copies of the model,
//     they alternate, so that few entries wait. The constructors [Indexed], [Stream] and
//     [PerRank] define how ranks share a source.
//   - The accumulators of a parameter's uses stay with the uses. At step end the owner receives
//     the accumulators of other ranks, each only while it is added, and the total goes back to
//     every use. On one rank only the first use has the total.
//
// The runner reads a clock when a transfer waits, and at the first and the last computation: a
// [Result] reports work and waits separately.
//
// # Replicas
//
// Data-parallel replicas (Replicas) are further ranks of the runner, and share the batch of a step.
// A replica owns a range of the elements of every parameter ([Owned]).
//
//   - REDUCE_GRAD exposes the gradients of a stage to the other replicas. A goroutine of the rank adds
//     the pieces of the elements that its replica owns, in the order of the replicas, while the rank
//     continues. At Shard 0 it then receives the other sums.
//   - From Shard 2 on, ZERO_GRAD allocates the whole gradients of a stage. WAIT_REDUCE releases them
//     when their reduction is over and all other replicas have read them.
//   - At Shard 3, UNSHARD allocates the whole weights of a stage, and another goroutine reads them
//     from their owners, who do nothing. The first call of the stage waits for them; RESHARD releases
//     them. Stages ask for their weights with Microbatch.Weight.
//   - Norms are added from the sums of squares of parts, and uses of tied parameters are reduced
//     first and then added by ranges, so that every level has the same bits.
//
// # Planned memory
//
// [Record] calls every stage once in a dry run and records how it changes references. A step and
// a dry run make the calls of stages with the same code (internal/calls): the step decides when,
// and the recorder (internal/profile) records them. With this profile (Memory.Profile), package
// layout turns a plan's lifetimes into a layout: the address of every buffer of a step, on every
// rank. It is made when a step first needs it, or by Prepare, which returns it. A step then
// reserves that much memory before its first action, passes its position in the program to the
// space, and compares the live bytes with the layout after every microbatch (L6). Allocations of
// a stage that are not in its profile fail.
//
// # Copies of weights
//
// If a stage computes with copies of its weights (stages.Quantizer), the runner adds QUANTIZE to
// the rule's plan, before the stage's first forward or at the start of the step
// (Plan.Quantizing). The stage makes the copies, the frames hold them, and the plan's drop bits
// release them: copies for the forward with the last action that reads them, copies for the
// backward with the last backward. An evaluation makes copies for the forward only (L14).
//
// # The end of a step
//
// A step ends in this order: gradients that were not written are set to zero; reductions over
// replicas complete; uses of tied parameters are added in stage order; the books are compared; in
// one exchange every rank receives the losses, squares of gradients and measurements of all ranks; then follow the check
// for finite values, the gradient norm, the check for an empty step, and the Result, which is the
// same on every rank. The trainer owns the optimizer: Result.Update calls it with the factor,
// once.
//
// # Failures
//
// An error, a cancelled context or a panic of a stage, on any rank, ends the step on all ranks.
// Everything that the step held is released on each, and the next step works (L8). Errors are
// *[Error] and name rank, stage, microbatch and action; every rank returns the first one. A panic
// continues with its own stack after everything is released; if there are several ranks, Step
// panics again with a *[Panic].
//
// A deadlock of ranks ends the step at once, and a step without progress ends after a timeout,
// with a *[transport.StallError] in the terms of the plan.
package runner
