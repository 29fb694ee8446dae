package choose

import (
	"runtime"
	"sync"
)

// inParallel runs pieces of work on all processors, and returns their results in order.
func inParallel[T any](work []func() T) []T {
	results := make([]T, len(work))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for i, do := range work {
		workers.Go(func() {
			free <- struct{}{}
			results[i] = do()
			<-free
		})
	}
	workers.Wait()
	return results
}
