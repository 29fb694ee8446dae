// Package cachingsim simulates PyTorch's caching allocator, for comparisons with it, both
// native and with expandable segments. Nothing in the library allocates from it.
//
// The rules are the same as in c10/cuda/CUDACachingAllocator.cpp: sizes are rounded up to 512 bytes;
// up to 1 MiB they come from a pool of 2 MiB segments, above that from one of 20 MiB segments
// or from segments of their own; the best fit of a pool is taken, split if enough is left, and
// merged with its free neighbours when it is freed; a segment is returned to the device only as
// a whole, when the cache is emptied or the device is full. Expandable segments map pages of 2
// or 20 MiB into one range instead.
//
// An [Allocator] accepts the same requests and returns the same addresses, relative to those of
// the driver, and [Allocator.Snapshot] returns its history in PyTorch's form. docs/snapshots.md
// lists the histories of real PyTorch with which it was compared.
//
// Not simulated: private pools of CUDA graphs, garbage_collection_threshold, rounding to
// divisions of powers of two, and streams that use a block of another one (a free that waits
// for them is two calls, [Allocator.Retire] and [Allocator.Complete]).
package cachingsim
