// Package memorytest proves that a [memory.Space] counts references as the
// interface says.
//
// An embedder who brings handles of its own runs [Space] in a test and hands it
// a function that opens a fresh [Subject]. The optional abilities [memory.Book]
// and [memory.Reclaimer] are found and examined as well.
package memorytest
