// Package frames holds the tensors of one step for the runner, checks that all of them were
// released, and implements the views of package batchctx.
//
// [Frames] belongs to one rank. It holds, for the runner, every handle that outlives one stage call:
//
//   - entries: the named parts of a microbatch's entry, each from the source's call until the part's last
//     read on this rank (L1);
//   - frames: for each stage and microbatch in flight, the stage's inputs, the gradients of
//     its outputs, and the tensors that it has saved for a later action (L2);
//   - gradients: not their values, but which calls may write them and how often (L5);
//   - the copies of weights that a stage computes with, from the step's QUANTIZE until the last action
//     that reads them (L14).
//
// Every handle is in a [Cell]. Hold fills a cell and drop empties it; both update the book.
//
// # Microbatch numbers
//
// Methods identify a microbatch by its number in the replica's plan. Its batch index is
// its position in the replica's batch (schedule.Plan.BatchIndex); the two differ if the placement contains
// several copies of the model. Its index is its number in the global batch, which all replicas share
// ([Frames.Index]); this is the number that users see.
//
// # Two books
//
// The frames' book counts the bytes of the buffers that Frames holds. The allocator's book counts
// allocations and frees (memory.Book). After every microbatch Frames compares the two books, class by
// class, and compares the numbers of live parts, frames, activations, gradients and copies with the
// plan's. It reports a difference as a [LeakError], which names the rank, stage, microbatch, class and
// bytes (L6).
package frames
