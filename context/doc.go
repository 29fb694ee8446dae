// Package batchctx gives a stage, or a source of entries, its view of one microbatch.
//
// The folder is context/ and the package is batchctx, so that the standard package context needs no
// alias: import it as batchctx "github.com/weir-ml/weir/context".
//
// A stage receives one [Microbatch], a view that ends with the call. Through it the stage reads entry
// parts, saves and takes tensors, records losses as two numbers, and accesses gradients. A stage has no other
// way to keep a tensor. A source receives an [Entry] and fills it.
//
// # Who owns what
//
// Arguments are borrowed for the call. The runner takes over the tensors that a stage returns or saves;
// to return or save an argument, Retain it first. Take lends a saved tensor for the rest of the action,
// and a second Take in the same action fails with ErrTaken. The runner releases the tensor at the end of the
// last action that takes it, unless ReleaseSaved releases it earlier.
//
// # Two books
//
// The step's book counts buffers when they are handed over and when they are released. The allocator's
// book counts allocations and frees (memory.Book). After every microbatch the runner compares the two. It
// reports a difference as a [LeakError], which names the rank, stage, microbatch, class and bytes (L6).
package batchctx
