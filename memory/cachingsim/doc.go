// Package cachingsim simulates PyTorch's caching allocator, both native and with expandable segments, so
// that other allocators can be compared with it. Nothing in the library allocates from it.
//
// The rules are the same as in c10/cuda/CUDACachingAllocator.cpp: sizes are rounded up to 512 bytes;
// sizes up to 1 MiB come from a pool of 2 MiB segments, larger ones from a pool of 20 MiB segments or
// from separate segments; the best fit in a pool is taken, split if enough is left over, and merged
// with its free neighbors when it is freed; a segment is returned to the device only as a whole, when
// the cache is emptied or the device is full. Expandable segments map pages of 2 or 20 MiB into a reserved
// range instead.
//
// An [Allocator] accepts the same requests and returns the same addresses, relative to the driver's, and
// [Allocator.Snapshot] returns its history in PyTorch's form. docs/dev/measurements.md lists the histories from
// real PyTorch with which it was compared.
//
// Not simulated are private pools of CUDA graphs, garbage_collection_threshold, rounding to divisions of
// powers of two, and streams that use another stream's block (a free that waits for them takes two calls,
// [Allocator.Retire] and [Allocator.Complete]).
package cachingsim
