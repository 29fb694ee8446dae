// Package fakecuda is a CUDA driver in Go, for tests on machines without a GPU: kernels are PTX
// that package ptx runs, memory is bytes of the process.
//
// Queued work runs later, in an order that the seed decides: each stream in its own order, and different
// streams in any order that events allow. One stream after another stalls for a while. So a missing edge
// between streams shows with some seed. The memory that a piece of work may touch is fixed when it is
// queued, from the arena's live buffers at that time ([Driver.Follow]): a kernel touches only the buffers
// whose addresses are its arguments, each access is within one buffer, and it reads no byte that was not
// written since the buffer was allocated. Breaking a rule loses the device, and the error has the location.
//
// Devices of one machine ([NewMachine]) run their work in one common order, wait for each other's
// events, and copy from each other if they are peers.
//
// A [Driver] counts its calls by name, has a given amount of memory, and fails planted calls
// ([Driver.Plant]).
package fakecuda
