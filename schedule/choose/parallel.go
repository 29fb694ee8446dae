package choose

import (
	"runtime"
	"slices"
	"sync"
)

// runParallel calls the functions on all processors and returns their candidates in order.
func runParallel(work []func() []*Candidate) []*Candidate {
	results := make([][]*Candidate, len(work))
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
	return slices.Concat(results...)
}
