package testkit

import (
	"math"
	"runtime"
)

// Allocations returns how many times f allocates on the Go heap once it is warm: the least
// of three runs, since the runtime and the testing package allocate now and then beside it.
// A run that comes to the number expected ends the search.
//
// One processor runs f, as in testing.AllocsPerRun. Each has a cache of the records by which
// goroutines wait: who blocks on one and goes on on another moves a record, and the runtime
// allocates more of them, the more so the busier the machine is. A test that calls it is not
// parallel.
//
// Where f asserts that a value has another interface, as a device does when it receives, the
// runtime caches the answer from a call on that it chooses by chance, one in 1024, and allocates
// the cache then. So a test that compares counts runs f ten thousand such calls long before.
func Allocations(f func(), expected ...uint64) uint64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
		if len(expected) > 0 && least == expected[0] {
			break
		}
	}
	return least
}
