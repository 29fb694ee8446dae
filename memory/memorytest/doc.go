// Package memorytest is a test suite for implementations of [memory.Space]: it checks that a
// space counts references as the interface requires.
//
// An embedder with its own handles calls [Space] in a test and passes a function that opens a
// new [Subject]. The suite detects the optional interfaces [memory.Book], [memory.PeakWatched],
// [memory.Reclaimer], [memory.Planned] and [memory.Scoped] and checks them as well. [Refusal] and [Pages]
// make allocations and pages fail.
package memorytest
