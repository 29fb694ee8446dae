// Package fakecuda is a CUDA driver in Go, for tests on machines without a GPU: package ptx runs the
// kernels, and the memory of the process serves as the memory of the device.
//
// Queued work runs later, in an order that the seed decides: each stream in its own order, and different
// streams in any order that events allow. One stream after another stalls for a while, so that some seed
// reveals a missing dependency between streams. The memory that a piece of work may touch is fixed when it is
// queued, from the arena's live buffers at that time ([Driver.Follow]): a kernel touches only the buffers
// whose addresses are its arguments, each access is within one buffer, and it reads no byte that was not
// written since the buffer was allocated. If a kernel breaks a rule, the device is lost, and the error has
// the location.
//
// The devices of one machine ([NewMachine]) run their work in one common order, can wait for each other's
// events, and can copy from each other if they are peers.
//
// A [Driver] counts its calls by name, has a given amount of memory, and fails planted calls
// ([Driver.Plant]).
package fakecuda
