// Package effects says what an action of a plan does to memory: in which place its result is
// held, and what it releases, in which order. It is the only source of these lifetimes. The
// lifetime pass turns them into drop bits, the runner applies them to the buffers of a step,
// package layout to the sizes of a profile, package simulate to costs, and package draw to
// microbatches in flight. Package check and the oracles of the tests say them once more, on purpose,
// so that two independent statements agree.
//
// An action of a rank has these effects, in this order:
//
//  1. If it Pulls, entries come, up to [Upto].
//  2. The action is done: the stage is called, or a transfer brings something.
//  3. Its result is held in the place To of Stage. QUANTIZE also makes copies of weights
//     for the backward, which are held in BackwardWeights.
//  4. The contents of the places Ends are released, place by place in the order of the
//     constants.
//
// [OfKind] is this table, of a stage with the stages before and after it:
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
//	QUANTIZE  copies of weights
//	UNSHARD   gathered weights
//	RESHARD                                        gathered weights
//
// Two lifetimes depend on the order of a program. The last action on a rank that reads an entry
// part releases it, and so does the last one that reads a copy of weights ([WeightReads]).
//
// The runner and package layout take allocations and releases within the call of a stage from
// the stage and from its profile.
//
// Inputs, gradients and saved state are a stage's for a microbatch, and so are sent buffers
// and outputs; copies of weights and gathered weights are a stage's alone.
//
// [Ties] says which uses of a parameter share one gradient, which both need as well.
package effects
