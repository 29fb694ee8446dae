// Package memorytest is for the author of a [memory.Space]: it proves that a space counts
// references as the interface says.
//
// An embedder with other handles runs [Space] in a test and hands it
// a function that opens a fresh [Subject]. The optional abilities [memory.Book],
// [memory.Reclaimer], [memory.Planned] and [memory.Scoped] are found and examined as
// well. [Refusal] and [Pages] make allocations and pages fail.
package memorytest
