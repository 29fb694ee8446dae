// Package cachingsim is for comparing with PyTorch: it simulates its caching allocator, native
// and with expandable segments. Nothing in the library allocates here.
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp: sizes are rounded up to
// 512 bytes; up to 1 MiB they come from a pool of 2 MiB segments, above from one of
// 20 MiB segments or segments of their own; the best fit of a pool is taken, split
// when enough is left, and merged with its free neighbours when it ends; a segment
// goes back to the device only as a whole, when the cache is emptied or the device is
// full. Expandable segments map pages of 2 or 20 MiB into one range instead.
//
// An [Allocator] takes the same requests and gives the same addresses, relative to
// those that the driver gave it, and [Allocator.Snapshot] writes its history
// as PyTorch does. docs/snapshots.md says
// against which histories of real PyTorch it was held.
//
// Left out: private pools of CUDA graphs, garbage_collection_threshold, rounding to
// divisions of powers of two, and streams that use a block of another one (a free that
// waits for them is two calls, [Allocator.Retire] and [Allocator.Complete]).
package cachingsim
