// Package far keeps saved state outside of a rank's space while nothing reads it.
//
// A [Memory] belongs to one rank. Its copies are allocated in a [memory.Arena] over a
// [memory.Range], so that a layout plans them before the step and their bytes are counted
// separately. [Heap] and [File] are such ranges; a device provides its own.
//
// Store starts the copy of a buffer to far memory, and Load starts the copy back. Wait blocks until
// the last Store or Load of a copy is complete. Each direction has one goroutine, its lane, which
// runs the copies in the order of the calls. The rank's goroutine never copies. Load verifies a
// checksum that Store has computed.
//
// The near buffer is lent from Store or Load until the Wait that returns nil, or until Stop: the
// caller must keep it until then. The lanes exist from Start to Stop. An error of the range affects
// only its copy, and Wait returns it. The caller must then stop the lanes and free everything.
//
// A device that is a [memory.Offloader] makes the copies itself: see [NewOn].
package far
