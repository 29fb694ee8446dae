// Package cuda computes on an NVIDIA GPU: [Device] is a kernels.Device whose arena is in the
// GPU's memory and whose work is queued.
//
// [Open] opens a device on a driver: the driver of package libcuda, or a fake one for tests.
//
// Ownership. The device owns a range of addresses and its pages, three streams (or five if it
// offloads), the kernel modules, and a ring of page-locked host memory. Close releases all of
// them and closes the driver. Buffers, books, scopes and layouts come from kernels.Buffers: a
// buffer is the start of the range plus an offset. Pages are mapped when a layout is set or a
// Resident buffer is allocated, never within a planned step.
//
// Order. Kernels run on one stream in program order; copies to the device and copies from it each
// have a separate stream. A copy to the device waits for the kernels that were queued before it, because
// they may read the previous contents, and the first kernel that uses the buffer waits for the
// copy. A copy from the device waits for the kernels queued before it. Releasing a buffer
// therefore only changes the books, in program order. The host waits only in Sync, in reads, when
// it returns pages to the system, in a write that finds the ring of page-locked memory full, in
// SumSquares and HeadLoss (for their results), and in operations that look up rows of a
// vocabulary by ids that the host did not write. A step adds its losses to cells of class
// memory.Loss (loss.DeviceCells), and reads them at its end.
//
// Offload. Copies to far memory, which is page-locked, and copies back each have a separate stream
// (Device.NewFarMemory). They wait for the kernels queued before them. At WAIT_OFFLOAD, and before the
// backward, kernels wait for the copy; the host does not. Thus a copy back runs after the
// corresponding copy out, and a place in either memory is reused only after the copies that use
// it. No copy is part of a graph.
//
// Graphs. Within a planned step the device defers kernels until the end of the plan's action. A
// sequence of kernels that recurs is captured once and then launched as a graph.
//
// Errors of the device itself wrap driver.ErrLost, and may be returned by a later call than the
// one that caused them.
package cuda
