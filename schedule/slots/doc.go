// Package slots assigns the tensors that a rank holds for its microbatches to slots, which are reused buffers, and
// proves that no slot is written while its tensor is alive. It serves runtimes whose buffers have fixed addresses, such
// as pools of receive buffers and captured graphs.
//
// [Make] assigns the slots of plans, and [Verify] proves an assignment from any source.
//
// # Definitions
//
// A rank runs the actions of its program in order. The moments of the program are its actions, except
// that the two actions of a joined pair are one moment. A tensor is born at the moment that writes it and
// dies at the moment of its last use. It is alive from its birth to its death, both included: if one tensor dies at the
// moment at which another is born, they need two slots. Package effects defines the tensors that an action writes and
// ends. There are four kinds of tensor, each for a stage and a microbatch:
//
//	tensor     written by   dies at
//	received   RECV_F       the F of its stage, or its last computation (see below)
//	           RECV_B       the B or I of its stage, or its last computation
//	saved      F            the last computation: B, or W if the backward is split
//	outputs    F            WAIT_F of the send; if the next stage is on the same rank, as a received
//	                        tensor of that stage; for a last stage, the same F
//	gradients  B, I         WAIT_B of the send; if the previous stage is on the same rank, as a received
//	                        gradient of that stage
//
// If the program has no WAIT for a send, the rank holds the sent tensor until the program ends. Saved state that
// moves to far memory keeps its slot. A stage has no saved state if it has no backward.
//
// [Hold] decides when an input or a gradient that was given to a stage dies. With [Taken], it dies at the
// computation that takes it, as in the lifetimes of Weir's plans. With [Last], it dies at the stage's last
// computation for the microbatch, because autograd keeps the input of a forward until the backward, and PyTorch keeps
// the gradient passed to a split backward until W. Last reproduces the figures of pytorch#196465: a receive buffer
// lives from its RECV "until its schedule-derived consumers finish", so ZBVZeroBubble on 4 ranks needs 43 buffers in
// pools by stage and direction, or 33 in pools by rank. Saved state is alive as analyze_pipeline_activation_liveness of
// PyTorch 2.15 defines it: from F to the B or W, both included.
//
// A pool is a set of slots of one rank and one kind of tensor. There is one pool for each stage and
// direction, or for each direction, or for the whole rank ([Pooling]). The slots of a plan are the sum
// over all ranks and pools; a tensor counts as one slot, regardless of its size.
//
// # The least number of slots
//
// A pool needs at least as many slots as tensors are alive in it at the same time. It needs no more: a tensor gets the
// slot that was released last, and a new slot only if no slot is free, that is, only if the tensors in all other slots
// are alive. Each assignment therefore records the moment at which its last slot was added (At): at this moment, as
// many tensors are alive as the pool has slots.
//
// # All repeats
//
// The slots of a plan of any number of microbatches are a finite table, a list of runs ([Run]): in the
// k-th microbatch of a run, the slot is Slots[k mod len(Slots)]. A warm-up is a run, then the periodic
// runs of a segment that repeats, then a drain.
//
// Make runs the repeats of a segment until its state recurs (package repeats): after a period, the same
// tensors are alive, with microbatches that are either unchanged or n later, and no pool has grown. List
// the slots of a pool in the order of the tensors in them (by kind, stage and microbatch), followed by
// the free slots in the order of their release. This list contains every slot of the pool once, before
// and after the period, so the period permutes it: each slot is replaced by the slot that is at the same place of the
// list after the period. The effect of a period depends only on places: a birth takes the last free place, and a death
// moves a place to the end. By induction, the next period does the same at the same places, with the slots permuted
// once more, as long as it kills the tensors at the same places. It does, because an action of a valid plan runs once:
// an action whose microbatch moves kills a tensor whose microbatch moves, unless it reaches the microbatch of a
// constant tensor, and no period from there on is skipped.
//
// So the slot of a birth runs through a cycle of the permutation, which is no longer than the number of
// slots. That is the period of its run. A growing program, such as gpipe's, is run action by action.
//
// # Variants
//
// A table may have several plans that exclude each other, such as training and evaluation, or one captured graph for
// each size of a group. Only one of them runs in a step, and all its slots are free when the step ends. So a pool needs
// the maximum of its variants, and each variant has its own runs. Microbatches of different shapes in one plan need no
// variants. Their lifetimes follow from the order of the actions, so they are the same for all shapes. A slot must be
// as large as the largest tensor that it may receive.
package slots
