// Package driver defines a small interface to a CUDA device: [Driver] has the 31 calls of the
// CUDA driver that package cuda needs. Package libcuda (build tag cuda) implements it with the
// system's driver; kernels/cuda/internal/fakecuda implements it in Go, for tests on any machine.
//
// Ownership. The caller that reserves, maps, loads or creates a resource releases it; Close
// releases the context and everything left in it. A range of addresses is reserved once; its
// pages are mapped (Map) and unmapped (Unmap) at fixed addresses.
//
// Work is queued on a [Stream] and runs in the order of that stream. Streams are ordered only
// by events: work queued on a stream after Wait for an event runs after the work queued before
// Record of that event. Only [Driver.Sync], [Driver.Done] and Close wait. A driver is safe for
// concurrent use by multiple goroutines.
package driver
