// Package runner runs training steps: it executes a plan, calling stages and releasing buffers as the
// plan says. It compares the books after every microbatch, and reduces losses and gradients once, at
// step end.
//
// [New] makes a [Runner] from a [Config]. It runs the ranks of its process. Step(ctx, M, source) trains
// on M microbatches and returns a [Result]; Evaluate runs only the forward. M may differ from call to
// call. The runner asks the schedule for a plan of M microbatches, or takes Plan.Fixed. It adds transfers
// to a plan of several ranks that has none, and lifetimes, which it derives from the stages' declarations.
// It then checks the plan. It keeps the latest plans.
//
// The runner owns every handle between stage calls. It follows the plan and decides nothing itself:
// the drop bits determine which buffers each action releases, and package effects determines the
// order.
//
// # Several ranks
//
// Each rank has its own space; Config.Stages lists the stages of all ranks. If the process has several
// ranks, each has its own goroutine. [local.Links] join the ranks, unless the embedder supplies a
// [transport.Transport] (Topology), which can also join ranks in other processes; package transporttest
// tests its contract.
//
// Ownership between ranks (L4):
//
//   - A tensor that a stage returns for another rank stays in the outbox of its rank's frames,
//     unchanged, from the F, B or I that made it to the WAIT of its transfer. A send borrows it.
//   - A receive hands over copies in buffers of the receiver's own space, of class Transfer. They are
//     released like tensors that a stage of the rank has returned. Handles never cross ranks.
//   - Every rank asks its source for every microbatch of its replica, in batch order, and immediately
//     releases the parts that none of its stages reads. If a plan runs several copies of the model, the
//     copies alternate, so that few entries have to wait. The constructors [Indexed], [Stream] and
//     [PerRank] define how ranks share a source.
//   - Every use of a parameter has its own accumulator, on the rank of its stage. At step end the
//     first use, the owner, adds the accumulators of the other uses; a copy from another rank
//     exists only while it is added. Every use then receives the total, on any number of ranks and
//     replicas. New refuses a name that two uses share without declaring the tie
//     (Decl.TiedParam), and ties whose sizes or element types differ.
//
// The runner reads the clock when a transfer waits, and at the first and last computation, so that a
// [Result] can report work and waits separately.
//
// # Replicas
//
// Data-parallel replicas (Replicas) add ranks to the runner, and share the batch of a step, evenly or in a given order
// ([InOrder]). Each replica owns a range of the elements of every parameter ([ShardRange]).
//
//   - REDUCE_GRAD exposes the gradients of a stage to the other replicas. While the rank continues, a
//     goroutine adds up the range that its replica owns, in replica order. At Shard 0 it then
//     receives the sums of the other ranges.
//   - At Shard 2 and 3, ZERO_GRAD allocates the whole gradients of a stage. WAIT_REDUCE releases
//     them when their reduction has ended and all other replicas have read them.
//   - At Shard 3, UNSHARD allocates the whole weights of a stage, and another goroutine reads them
//     from the memory of their owners. The first call of the stage waits for them; RESHARD releases
//     them. Stages ask for their weights with Microbatch.Weight.
//   - The results are bit-identical at every level, because a norm is summed over fixed parts of each
//     gradient, and the uses of a tied parameter are reduced before they are added.
//
// # Planned memory
//
// Package record makes every kind of call of each stage in a dry run, and records how each call changes
// references. A step and a dry run call the stages through the same code (internal/calls). From this
// profile (Memory.Profile) and a plan's lifetimes, package layout computes a layout: the address of
// every buffer of a step, on every rank. The runner knows it only as a [planning.Planner]. The first step that
// needs the layout computes it; Prepare computes it ahead of time, even while a step runs. A step then reserves the
// memory before its first action, gives each allocation the address that the layout has for it, and compares the live
// bytes with the layout after every microbatch (L6). An allocation of a stage that is not in its profile fails.
//
// # Copies of weights
//
// If a stage computes with copies of its weights (stages.Quantizer), the runner adds QUANTIZE to
// the rule's plan, before the stage's first forward or at the beginning of the step
// (Plan.Quantizing). The stage makes the copies, the frames hold them, and the plan's drop bits
// release them: copies for the forward after the last action that reads them, and copies for the
// backward after the last backward. An evaluation makes only copies for the forward (L14).
//
// # The end of a step
//
// A step ends in this order: gradients that were not written are set to zero; reductions over
// replicas complete; uses of tied parameters are added in stage order; the books are compared;
// one exchange gives every rank the losses, squares of gradients and measurements of all ranks.
// From these every rank computes the same Result: the rank checks for non-finite values and for an
// empty step, and computes the gradient norm and the factor by which the optimizer must multiply the
// gradients. The trainer owns the optimizer: Result.Update calls it with the factor, once.
//
// # Failures
//
// An error, a canceled context or a stage's panic, on any rank, ends the step on all ranks. Each rank
// releases everything that it holds, and the next step works (L8). Every rank returns the first error. It is a
// *[transport.StepError], which names the rank, stage, microbatch and action, unless the step could not
// begin. After everything is released, a panic continues with its original stack; if the process has several
// ranks, Step panics with a *[Panic].
//
// A deadlock between ranks ends the step immediately, and a step that makes no progress ends after a
// timeout, with a *[transport.StallError] that describes it in terms of the plan.
package runner
