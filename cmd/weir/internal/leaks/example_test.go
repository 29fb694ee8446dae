package leaks_test

import (
	"fmt"

	"github.com/weir-ml/weir/cmd/weir/internal/leaks"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

// Eight microbatches, and a list that keeps the loss of each.
func Example() {
	forward := []snapshot.Frame{{Name: "forward", Filename: "model.py", Line: 20}}
	loss := []snapshot.Frame{{Name: "cross_entropy", Filename: "loss.py", Line: 31}}
	a := cachingsim.New(cachingsim.Config{History: true})
	for range 8 {
		activation, err := a.Malloc(cachingsim.Request{Bytes: 64 << 20, Frames: forward})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := a.Malloc(cachingsim.Request{Bytes: 164 << 20, Frames: loss}); err != nil { // logged, and never freed
			fmt.Println(err)
			return
		}
		if err := a.Free(activation); err != nil {
			fmt.Println(err)
			return
		}
	}
	report, err := leaks.Find(a.Snapshot(), leaks.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, g := range report.Devices[0].Growing {
		fmt.Printf("%s: %d MiB with every microbatch, since microbatch %d\n", g.Site, g.Each>>20, g.First)
	}
	// Output: loss.py:31 cross_entropy: 164 MiB with every microbatch, since microbatch 0
}
