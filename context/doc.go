// Package batchctx is for writing a stage or a source of entries: it is their view of one
// microbatch.
//
// The folder is context/ and the package is batchctx, so that std context stays
// unaliased: import it as batchctx "github.com/weir-ml/weir/context".
//
// A stage sees one [Microbatch], a view that ends with the call. Through it the
// stage reads entry parts, saves and takes, records losses as two numbers, and
// reaches gradients. There is no other place to hang a tensor on. A source sees an
// [Entry], which it fills.
//
// # Who owns what
//
// Arguments are borrowed for the call. A stage hands over
// what it returns or saves; to return or save an argument, Retain it first. Take lends what was
// saved for the rest of the action and ends it with the action, or earlier with
// End; a second Take is ErrTaken.
//
// # Two books
//
// The step's book counts buffers when they are handed over and when they are released. The
// allocator counts when it allocates and frees (memory.Book). After every microbatch the
// two are compared. A difference is a [LeakError], which names rank, stage, microbatch,
// class and bytes (L6).
package batchctx
