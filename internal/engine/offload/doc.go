// Package offload holds saved state outside a rank's space while no action reads it.
//
// A [Memory] belongs to one rank. It allocates its copies in a [memory.Arena] over a [memory.Range], so
// that a layout can plan them before the step, and the arena counts their bytes separately. [Heap] and
// [File] return such ranges; a device provides its own.
//
// Store starts copying a buffer to far memory, and Load starts copying it back. Wait blocks until the
// last Store or Load of a copy is complete. Each direction has one goroutine, its lane, which runs the
// copies in the order of the calls; the rank's goroutine never copies. Load verifies the checksum that
// Store has computed.
//
// Store and Load borrow the near buffer until Wait returns nil, or until Stop: the caller must keep it
// until then. The lanes exist from Start to Stop. If the range fails, Wait returns the error for the
// affected copy. The caller must then stop the lanes and free everything.
//
// A device that is a [memory.Offloader] makes the copies itself: see [NewOn].
package offload
