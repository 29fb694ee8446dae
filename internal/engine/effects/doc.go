// Package effects defines the effects of a plan's actions on memory: the kind of buffer that an action
// makes, and the kinds that it releases, in order. It is the only source of these lifetimes.
// The lifetime pass turns them into drop bits; the runner applies them to the buffers of a step, package
// layout to the sizes of a profile, package simulate to costs, and package draw to microbatches in
// flight. Only package check and the test oracles define them a second time, so that two independent
// definitions must agree.
//
// An action has these effects, in this order:
//
//  1. If Pulls is set, the source is asked for all entries up to [Upto] that have not been pulled yet.
//  2. The action runs: the runner calls the stage, or a transfer receives tensors.
//  3. Its result becomes a buffer of kind To, which belongs to Stage. QUANTIZE also makes copies of
//     weights for the backward, of kind BackwardWeights.
//  4. The buffers of the kinds in Ends are released, kind by kind in the order of the constants.
//
// [OfKind] implements this table for a stage with stages before and after it:
//
//	kind      result is held as                    releases
//	F         input of the next stage, if local    its input, if a stage is before it
//	          sent output, if not local            its output, if it is the last stage
//	          output, if it is the last stage      saved state, if it has no backward
//	B, I      gradient of the stage before, if     its gradient, if a stage is after it
//	          local and that has a backward        saved state; after I of a stage that
//	          sent gradient, if not local          trains, W takes the rest
//	W                                              saved state
//	RECV_F    input
//	RECV_B    gradient
//	WAIT_F                                         sent output
//	WAIT_B                                         sent gradient
//	OFFLOAD   far copy of the slots that are away
//	WAIT_OFFLOAD                                   saved state, of these slots
//	RELOAD    saved state, of these slots
//	QUANTIZE  copies of weights
//	UNSHARD   gathered weights
//	RESHARD                                        gathered weights
//	ZERO_GRAD whole gradients
//	WAIT_REDUCE                                    whole gradients
//
// Three lifetimes depend on the order of a program. The last action on a rank that reads an entry
// part releases it. The last action that reads a copy of weights releases the copy ([WeightReads]).
// The B or I of a microbatch whose saved state was in far memory waits for the reload and releases
// the far copy. Its drop bit DropFar marks these microbatches, because a plan need not offload all
// microbatches of a stage.
//
// The allocations and releases during a stage call depend on the stage; its profile lists them.
//
// A stage holds inputs, gradients, saved state, sent buffers and outputs for each microbatch, but
// copies of weights, gathered weights and whole gradients only once.
//
// [Ties] returns the uses of a parameter that share one gradient, for the runner and package
// layout.
package effects
