package memory_test

import (
	"fmt"
	"testing"

	"github.com/weir-ml/weir/memory"
)

// BenchmarkArenaPlanned measures Alloc and Release under a layout, with some live buffers: a
// thousand pairs at a place.
func BenchmarkArenaPlanned(b *testing.B) {
	const births = 1000
	for _, live := range []int{0, 10, 1000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a := open(b, 1<<30, 0)
			layout := &memory.Layout{Height: int64(live+1) * 4096, Places: []int32{0, int32(live), int32(live) + births}, Levels: make([]memory.Level, 2)}
			for i := range int64(live + births) {
				layout.Allocations = append(layout.Allocations, memory.Allocation{Offset: min(i, int64(live)) * 4096, Bytes: 4096, Class: memory.Saved})
			}
			if err := a.SetLayout(layout); err != nil {
				b.Fatal(err)
			}
			a.SetPlace(0)
			for range live {
				alloc(b, a, memory.Saved, 4096)
			}
			place := func() {
				a.SetPlace(1)
				for range births {
					h, err := a.Alloc(memory.Saved, 4096)
					if err != nil {
						b.Fatal(err)
					}
					if _, err = a.Release(h); err != nil {
						b.Fatal(err)
					}
				}
			}
			place() // the first time, each birth is checked
			b.ReportAllocs()
			for b.Loop() {
				place()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/births, "ns/pair")
		})
	}
}
