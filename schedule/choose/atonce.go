package choose

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// atOnce does pieces of work on all processors, and returns what each of them returns.
func atOnce[T any](work []func() T) []T {
	results := make([]T, len(work))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(work) {
					return
				}
				results[i] = work[i]()
			}
		})
	}
	workers.Wait()
	return results
}
