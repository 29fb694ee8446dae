// Package ptx interprets PTX kernels on the processor, for tests. It supports the part of the
// language that clang generates for the kernels of this module, and checks every memory access.
//
// [Parse] reads a module, and [Kernel.Launch] runs one of its kernels to completion. The caller
// owns global memory and lends it as a [Memory], region by region. The package owns registers
// and shared memory, which exist until the block ends. A launch checks the following, and
// returns an error ([LaunchError]) with the line of PTX, the thread and the block:
//
//   - an access is within one live region, and is aligned to its size;
//   - no thread reads global or shared memory that was never written;
//   - if two threads access the same memory and at least one of them writes, a barrier of their
//     block separates the accesses. No barrier separates threads of two blocks;
//   - all threads of a block arrive at the same barrier, and none has ended before.
//
// Blocks, and warps between barriers, run in an order determined by a seed. Threads of a warp
// run together while they are at the same instruction, but are not otherwise synchronized:
// without a barrier a race within a warp is a race too.
//
// An instruction gives the same bits as on hardware, except for matrix products
// (mma), which hardware may sum in another order. Parse rejects instructions whose value PTX
// does not define exactly (such as ex2.approx), and floating-point atomics, whose order would
// determine the bits. Integer atomics do not race with each other. Overlapping accesses of a
// byte and of a word are not checked for races.
package ptx
