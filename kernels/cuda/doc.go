// Package cuda implements computing on an NVIDIA GPU: [Device] is a kernels.Device whose arena
// is in the memory of the GPU and whose work is queued.
//
// Ownership. The device owns a range of addresses and its pages, three streams, two more if it
// offloads, the modules of kernels, and a ring of page-locked host memory. Close releases all of them, and closes the
// driver. Buffers, books, scopes and layouts come from kernels.Buffers: a buffer is the start
// of the range plus an offset. Pages are mapped when a layout is set or a Resident buffer is
// allocated, never within a planned step.
//
// Order. Kernels run on one stream in program order; copies in and copies out have a stream
// each. A copy in waits for the kernels that were queued before it, which may read the previous
// contents, and the first kernel that uses the buffer waits for the copy; a copy out waits for
// the kernels before it. Releasing a buffer therefore only changes the books, in program order.
// The host waits only in Sync, in reads, when it returns pages to the system, in a write that
// finds the ring of page-locked memory full, in SumSquares and HeadLoss for their results, and
// in operations that look up rows of a vocabulary by numbers that the host has not written. A
// step adds its losses to cells of class memory.Loss (loss.Cells), and reads them at its end.
//
// Offload. Copies to far memory, which is page-locked, and copies back have a stream each (Device.Far).
// They wait for the kernels queued before them. At WAIT_OFFLOAD, and before the backward, kernels wait
// for the copy; the host does not. So a copy back runs after its copy out, and a place in either memory
// is used again only after the copies that use it. No copy is part of a graph.
//
// Graphs. Within a planned step the device defers kernels until the end of the plan's action. A
// sequence of kernels that recurs is captured once and then launched as a graph.
//
// Errors of the device itself are driver.ErrLost, and may be returned by a later call than the
// one that caused them.
package cuda
