// Package frames holds the tensors of one step for the runner, checks that all of them were
// released, and implements the views of package batchctx.
//
// [Frames] belongs to one rank. It holds, for the runner, every handle that outlives one call of
// a stage:
//
//   - entries: the named parts of a microbatch's batch entry, each from the pull
//     of the source to its last read on this rank (L1);
//   - frames: for a stage and a microbatch its inputs, the gradients of its
//     outputs, and the tensors that Forward saved for a later action (L2);
//   - gradients: not their values, but which calls may write them and how often (L5);
//   - copies of weights that a stage computes with: from the QUANTIZE of the step to the
//     last action that reads them (L14).
//
// # Two books
//
// Frames counts bytes when it becomes the holder of a buffer and when it stops being the holder.
// The allocator counts allocations and frees (memory.Book). After every microbatch Frames
// compares the two, class by class, and the numbers of live parts, frames, activations, gradients
// and copies with the plan's. A difference is a [LeakError], which names the rank, stage,
// microbatch, class and bytes (L6).
package frames
