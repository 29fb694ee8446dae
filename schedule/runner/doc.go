// Package runner is for training: it runs a plan, calls stages in its order, drops what the
// plan says is no longer used, compares the books after every microbatch, and reduces losses
// and gradients once, at step end.
//
// A [Runner] has the ranks of its process. Step(ctx, M, source) trains on M microbatches
// and returns a [Result]; Evaluate runs them forward only. M may differ from call
// to call. The runner asks the schedule for a plan of M, or takes the one that it was given
// (Plan.Fixed), adds transfers where there are several ranks and the lifetimes that its
// stages declare, checks it, and keeps the last plan of each kind.
//
// The runner owns every handle between the calls of stages, and obeys: what dies
// where is in the plan's drop bits, and in which order in package effects. It never guesses.
//
// # Several ranks
//
// Each rank has a space of its own, and a goroutine where the process has several ranks,
// which [local.Links] join; Config.Stages lists the stages of all. Ranks in other processes are
// joined by a [transport.Transport] of the embedder's (World), held to its contract by package
// transporttest.
//
// Who owns what between ranks (L4):
//
//   - What a stage returns for another rank goes into the outbox of its rank's context
//     and stays there, unchanged, from the F, B or I that made it to the WAIT of its
//     transfer. A send lends it.
//   - A receive hands over copies in buffers of the receiver's own space, of class
//     Transfer, which end like what a stage of the rank has returned. No handle crosses
//     a rank.
//   - A source is asked for every microbatch on every rank, in the order of the batch;
//     what no stage of the rank reads ends at once. Where a plan runs several copies of
//     the model, they take turns, so that few entries wait. The constructors [Indexed],
//     [Stream] and [PerRank] say how ranks share it.
//   - The accumulators of a parameter's uses stay where the uses are. At step end those
//     of other ranks are received for as long as it takes to add them, and the total
//     goes back to every use. On one rank the first use alone has the total.
//
// A clock is read where a transfer waits, and at the first and the last computation:
// a [Result] tells work and waits apart.
//
// # Planned memory
//
// [Record] calls every stage once in a dry run and writes down what it does to
// references. A step and a dry run make the calls of stages with the same code
// (internal/calls): the step decides when, the recorder (internal/profile) writes them
// down. With this profile (Memory.Profile) a plan's lifetimes become a layout,
// by package layout: where every buffer of a step lies, on every rank. It is made when a
// step first needs it, or by Prepare, which says what it needs. A step then reserves that
// much before its first action, tells the space where in the program it is, and compares
// what is live with the layout after every microbatch (L6). What a stage allocates that
// its profile does not have is refused.
//
// # Copies of weights
//
// Where a stage computes on copies of its weights (stages.Quantizer), the runner puts
// QUANTIZE into the rule's plan, before the stage's first forward or at the start of the
// step (Plan.Quantizing). The stage makes the copies, the context holds them, and the
// plan's drop bits end them: those for the forward with the last action that reads them,
// those for the backward with the last backward. An evaluation makes those for the
// forward alone (L14).
//
// # The end of a step
//
// In this order: what was never written is zeroed; uses of tied parameters are
// added in stage order; the books are compared; in one exchange every rank learns the
// losses, the squares of gradients and the measures of all; the finite verdict, the
// gradient norm, the empty check; the Result, the same on every rank. The optimizer is
// the trainer's: Result.Update gives it the factor, once.
//
// # Every way out
//
// An error, a cancelled context, a panic of a stage, on any rank: all ranks end,
// everything that the step held is released on each, and the next step works (L8).
// Errors are *[Error] and name rank, stage, microbatch and action; the first one is
// what every rank returns. A panic goes on with its own
// stack after everything is released; several ranks throw it again, as a *[Panic].
//
// Ranks that wait for each other end the step at once, and a step in which nothing
// moves ends after a while, with a *[transport.StallError] in the terms of the plan.
package runner
