// Package cuda is for computing on an NVIDIA GPU: [Device] is a kernels.Device whose arena lies in
// the memory of the GPU and whose work is queued.
//
// Ownership. The device owns one range of addresses and whatever pages it has there, three
// streams, the modules of kernels, and a ring of page-locked memory of the host; Close gives
// all of it back, and closes the driver. Buffers, books, scopes and layouts are those of
// kernels.Buffers: a buffer is the start of the range plus an offset. Pages come when a layout
// is laid or a Resident buffer is made, never within a planned step.
//
// Order. Kernels run on one stream in the order of the program; copies in and copies out have
// a stream each. A copy in waits for the kernels that were queued before it, which may read
// what lay there, and the first kernel that uses the buffer waits for the copy; a copy out
// waits for the kernels before it. So releasing a buffer is a matter of the books alone, in
// program order. Nothing waits on the host but Sync, the reads, what hands pages back,
// a write that finds its ring of page-locked memory full, SumSquares and HeadLoss for what they
// return, and what looks rows of a vocabulary up by numbers that the host has not written. A step
// has its losses added to cells of class memory.Loss (loss.Cells), and reads them at its end.
//
// Graphs. Within a planned step kernels are put off until the action of the plan is over. A
// sequence of them that comes again is captured once and then launched as a graph.
//
// Errors of the device itself are driver.ErrLost, and may come with a later call than the one
// that caused them.
package cuda
