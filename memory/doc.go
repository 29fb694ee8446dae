// Package memory is for counting memory: who holds how much of it, and until when.
//
// A [Space] counts the references to the buffers behind an embedder's own
// handles. References come in two kinds. A plain reference belongs to code: a
// stage that has just allocated a buffer has one. A held reference belongs to
// the step: handing a buffer over turns a plain reference into a held one
// (Hold), and letting go turns it back (Yield). Keeping the two apart is what
// makes two independent books possible (L6):
//
//   - the allocator's book is fed by allocate and free alone ([Book]);
//   - the context's book is fed by Hold and Yield alone (package batchctx).
//
// A stage that keeps a secret reference to a buffer it handed over makes the
// first book larger than the second, and the next audit names it.
//
// [Arena] is a Space over one reserved range outside the garbage collector's
// heap; its handles carry a generation and a number of the arena, so one that is stale
// or of another arena is an error and never somebody else's bytes. [Collected] is a Space for handles whose memory
// belongs to a garbage collector: it has no allocator's book, and a step over
// it says that one book was audited and not two. [Surveyed] also counts the tensors that outlive
// steps.
//
// A step whose plan is known needs no allocator. A [Layout] gives every buffer of the step
// its offset before the step begins, and a Space that is [Planned] obeys it: allocation
// is base plus offset. A buffer that the layout does not have is an error that says so, never an
// allocation in silence, and nothing is placed over a buffer that was not released. Pages
// are there when Lay returns, or the step does not begin. A step without a layout can be
// watched instead: a Space that is [PeakWatched] says afterwards which buffers were live
// when most was.
//
// An arena has regions that never mix, each a [Scope]: the buffers of steps, weights,
// gradients, the optimizer's state, and one slab for tables that are small and live long.
// Between steps a Space that is [Scoped] hands the pages of whole scopes back to the
// system and keeps the addresses; nothing in one scope keeps a page of another one.
//
// Under -tags invariants released memory is poisoned, every buffer has canaries behind it,
// regions have guard pages, and a step tells which bytes it has touched
// ([Arena.Touched]).
//
// [Meter] is an allocator's book as a value, for implementations of Book: what is live by
// class, and what was when most was, at the cost of a branch. [Info] describes a live
// buffer to people. Package memorytest proves that a Space of one's own counts as it
// should.
//
// [Sample] is one record of the memory log and [Ring] keeps the last of them
// without ever growing (L7).
package memory
