// Package far keeps saved state outside of a rank's space while nothing reads it.
//
// A [Memory] belongs to one rank. Its copies have places in a [memory.Arena] over a
// [memory.Range], so that a layout plans them before the step, and a book of their own counts
// them. [Heap] and [File] are such ranges; a device brings its own.
//
// Store starts the copy of a buffer to a new place, Load the copy back, and Wait blocks until the
// copy's last Store or Load is complete. Each direction has one goroutine, its lane, which makes
// the copies in the order of the calls. The rank's goroutine never copies. A copy has a checksum,
// which Load compares.
//
// The near buffer is lent from Store or Load until the Wait that returns nil, or until Stop: the
// caller must keep it until then. The lanes exist from Start to Stop. An error of the range ends
// only its copy, and Wait returns it; the caller then stops the lanes and frees everything.
//
// A device that is a [memory.Offloader] makes the copies itself: see [NewOn].
package far
