// Package fakecuda is a CUDA driver in Go, for tests on machines without a GPU: kernels are PTX
// that package ptx runs, memory is bytes of the process.
//
// Work that is queued runs later, in an order by seed: each stream in its own order, streams
// among each other in any order that events allow. So a missing edge between streams shows
// with some seed. What a piece of work may touch is settled when it is queued, as the arena's
// book has it then ([Driver.Follow]): a kernel touches nothing but the buffers whose addresses it
// was given, whole accesses within one, and reads no byte that was not written since the
// buffer was allocated. Whoever breaks a rule loses the device, and the error says where.
//
// Devices of one machine ([NewMachine]) run their work in one order, by events of each other too,
// and copy from each other where it lets them.
//
// A [Driver] counts its calls by name, has as much memory as it is told, and fails where it
// is told ([Driver.Plant]).
package fakecuda
