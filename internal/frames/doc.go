// Package frames is for the runner alone: it keeps alive what one step needs, proves that all
// of it was released, and is the engine behind the views of package batchctx.
//
// [Frames] belongs to one rank. It holds, for the runner, every handle that
// lives longer than one call of a stage:
//
//   - entries: the named parts of a microbatch's batch entry, each from the pull
//     of the source to its last read on this rank (L1);
//   - frames: for a stage and a microbatch its inputs, the gradients of its
//     outputs, and what Forward saved for a later action (L2);
//   - gradients: never the numbers, but who may write them and how often (L5);
//   - copies of weights on which a stage computes: from the QUANTIZE of the step to the
//     last action that reads them (L14).
//
// # Two books
//
// Frames counts bytes when it becomes the holder of a buffer and when it
// stops being one. The allocator counts when it allocates and frees (memory.Book).
// After every microbatch the two are compared, class by class, and so are the
// numbers of parts, frames, activations, gradients and copies with those of the plan. A
// difference is a [LeakError], which names rank, stage, microbatch, class and
// bytes (L6).
package frames
