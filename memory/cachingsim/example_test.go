package cachingsim_test

import (
	"fmt"

	"github.com/weir-ml/weir/memory/cachingsim"
)

// A table of 64 KiB, allocated between activations, keeps their segment after they are freed.
func Example() {
	a := cachingsim.New(cachingsim.Config{})
	live, err := a.Replay([]cachingsim.AllocEvent{
		{ID: 0, Bytes: 500 << 10}, // an activation
		{ID: 1, Bytes: 64 << 10},  // the table
		{ID: 2, Bytes: 64 << 20},
		{ID: 0}, {ID: 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	a.EmptyCache()
	stats := a.Stats()
	fmt.Printf("%d buffer of %d KiB keeps %d MiB\n", len(live), stats.Allocated.Current>>10, stats.Reserved.Current>>20)
	// Output: 1 buffer of 64 KiB keeps 2 MiB
}
