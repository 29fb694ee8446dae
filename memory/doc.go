// Package memory accounts for memory: which owner holds how much of it, and for how long.
//
// A trainer whose tensors are buffers of package kernels has its Space in the device. For tensors of your
// own, wrap the garbage collector's ([NewGCSpace]), build on an [Arena], or implement [Space] and test it
// with package memorytest.
//
// A [Space] counts the references to the buffers behind an embedder's own handles. There are
// two kinds of references. A plain reference belongs to code: a stage that has just allocated a
// buffer has one. A held reference belongs to the step: passing a buffer to the step converts a
// plain reference into a held one (Hold), and Unhold converts it back. Separating the two makes two
// independent books possible (L6):
//
//   - the allocator's book is updated only by allocations and frees ([Book]);
//   - the context's book is updated only by Hold and Unhold (package batchctx).
//
// A stage that keeps a hidden reference to a buffer it passed on makes the first book larger
// than the second, and the next audit reports the buffer.
//
// [Arena] is a Space over one reserved range outside the garbage collector's heap. Its handles contain a
// generation and the arena's number, so that using a handle that is stale or belongs to another arena is
// an error, and never accesses other bytes. [GCSpace] is a Space for handles whose memory belongs to a
// garbage collector: it has no allocator's book, and a step that uses it reports that only one book was
// audited. [LeakTrackingSpace] also counts the tensors that outlive steps.
//
// A step with a known plan needs no allocator. A [Layout] gives every buffer of the step its
// offset before the step begins, and a Space that is [Planned] follows it: allocation is base
// plus offset. An allocation that the layout does not contain is an error, and nothing is placed over a
// buffer that has not been released. All pages are present when SetLayout returns; if that is impossible, SetLayout
// fails and the step does not begin. A step without a layout can be watched instead: a Space that is
// [PeakWatched] reports afterwards which buffers were live at the peak.
//
// An arena has separate regions, each a [Scope]: the buffers of steps, weights, gradients, the
// optimizer's state, and small tables with long lifetimes. Between steps, a Space that is
// [Scoped] can return the pages of whole scopes to the system while keeping the addresses; nothing in one
// scope pins a page of another.
//
// Under -tags invariants, an arena poisons released memory, checks the unused bytes next to a buffer when it
// is released, puts guard pages after the step's part and around the extents of scopes if it has room for
// them, and counts the bytes that a step with a layout has touched ([Arena.Touched]).
//
// [Meter] counts bytes for implementations of Book: the live bytes by class, now and at the peak. [Info]
// describes a live buffer in messages.
// Package memorytest checks that an implementation of Space counts as it should.
//
// [Sample] is one record of the memory log and [Ring] keeps the last records in constant memory
// (L7).
package memory
