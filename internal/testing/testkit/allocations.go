package testkit

import (
	"math"
	"runtime"
)

// Allocations returns the number of times that f allocates on the Go heap once it is warm. It is
// the least of three runs, because the runtime and the testing package occasionally allocate at
// the same time. If an expected number is given, the first run with that number ends the
// measurement.
//
// f runs on one processor, as in testing.AllocsPerRun. Each processor has a cache of the
// records with which goroutines wait: a goroutine that blocks on one processor and resumes on
// another moves a record, and the runtime allocates more records the busier the machine is. A
// test that calls Allocations must not be parallel.
//
// If f asserts that a value implements another interface, as a device does when it receives,
// the runtime caches the result at one call in 1024, chosen at random, and allocates the cache
// then. So a test that compares counts first runs f for ten thousand such calls.
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
