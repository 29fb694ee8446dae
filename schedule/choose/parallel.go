package choose

import (
	"runtime"
	"sync"
)

// runParallel calls the functions on all processors and returns their results in order.
func runParallel[T any](work []func() T) []T {
	results := make([]T, len(work))
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for i, run := range work {
		workers.Go(func() {
			running <- struct{}{}
			results[i] = run()
			<-running
		})
	}
	workers.Wait()
	return results
}
