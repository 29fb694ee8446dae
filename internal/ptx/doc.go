// Package ptx runs kernels in PTX on the processor, for tests: the part of the language that
// clang writes for the kernels of this module, every access checked.
//
// [Parse] reads a module, [Kernel.Launch] runs one kernel of it to its end. The caller owns
// global memory and lends it as a [Memory], region by region; the package owns registers and
// shared memory, which end with the block. What a launch checks, with the line of PTX, the
// thread and the block in the error ([Fault]):
//
//   - an access lies within one live region, and is aligned to its size;
//   - nothing is read, in global or shared memory, that nobody wrote;
//   - no two threads meet at the same memory, one of them writing, without a barrier of
//     their block between them. Threads of two blocks never have one;
//   - all threads of a block come to the same barrier, and none has ended before.
//
// Blocks, and warps between barriers, run in an order by seed. Threads of a warp run together
// where they are at the same instruction, and owe each other nothing: without a barrier a
// race is a race within a warp too.
//
// An instruction has the value that hardware gives it, to the bit, but for products of matrices
// (mma), which hardware may add up in another order. Those whose value the
// language leaves open (ex2.approx and its like) are refused by Parse, and so are atomics on
// floats, whose order would decide the bits. Atomics of whole numbers do not race with each
// other. Overlapping accesses of a byte and of a word are not checked for races.
package ptx
