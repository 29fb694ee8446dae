package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-ml/weir/memory"
)

// BenchmarkArenaAlloc measures Alloc and Release in an arena with some live buffers and gaps.
func BenchmarkArenaAlloc(b *testing.B) {
	for _, live := range []int{0, 10, 100, 1000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a := open(b, 1<<30, 0)
			var gaps []memory.Handle
			for range live {
				gaps = append(gaps, alloc(b, a, memory.Saved, 64))
				alloc(b, a, memory.Saved, 4096)
			}
			release(b, a, gaps...)
			b.ReportAllocs()
			for b.Loop() {
				h, err := a.Alloc(memory.Saved, 4096)
				if err != nil {
					b.Fatal(err)
				}
				if _, err = a.Release(h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// references makes the calls of a step for a buffer that it passes on.
func references[T any](b *testing.B, s memory.Space[T], h T) {
	b.Run("retain+release", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Retain(h); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Release(h); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hold+yield", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Hold(h); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Unhold(h); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkArenaReferences(b *testing.B) {
	a := open(b, 1<<20, 0)
	references(b, memory.Space[memory.Handle](a), alloc(b, a, memory.Saved, 4096))
}

func BenchmarkCollectedReferences(b *testing.B) {
	references(b, memory.Space[*tensor](newTensors()), &tensor{data: make([]byte, 4096)})
}

func BenchmarkRingPut(b *testing.B) {
	r, s := memory.NewRing(1024), memory.Sample{}
	b.ReportAllocs()
	for b.Loop() {
		r.Put(&s)
	}
}

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

// BenchmarkReleasePages releases 256 MiB of a step and 256 MiB of gradients and restores them,
// and runs a step over all of it before and after. It reports the medians and the quartiles of
// these pairs in milliseconds. Run it with -benchtime 31x.
func BenchmarkReleasePages(b *testing.B) {
	const bytes = 256 << 20
	a := open(b, 2<<30, 0)
	grads, err := a.AllocIn(memory.Gradients, bytes)
	if err != nil {
		b.Fatal(err)
	}
	layout := &memory.Layout{
		Height: bytes, Places: []int32{0, 1}, Levels: make([]memory.Level, 1),
		Allocations: []memory.Allocation{{Bytes: bytes, Class: memory.Saved}},
	}
	touch := func(h memory.Handle) {
		data, err := a.Data(h)
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; i < bytes; i += 64 {
			data[i]++
		}
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	step := func() {
		must(a.SetLayout(layout))
		a.SetPlace(0)
		h, err := a.Alloc(memory.Saved, bytes)
		must(err)
		touch(h)
		touch(grads)
		_, err = a.Release(h)
		must(err)
		must(a.SetLayout(nil))
	}
	step()
	times := map[string][]float64{}
	timed := func(name string, f func()) {
		start := time.Now()
		f()
		times[name] = append(times[name], float64(time.Since(start).Microseconds())/1000)
	}
	for b.Loop() {
		timed("step", step)
		timed("release", func() { must(a.ReleasePages(nil, memory.StepScope, memory.Gradients)) })
		timed("restore", func() { must(a.RestorePages(nil)) })
		timed("step-after", step)
	}
	for name, all := range times {
		slices.Sort(all)
		for at, quarter := range []string{"q1", "median", "q3"} {
			b.ReportMetric(all[(at+1)*(len(all)-1)/4], name+"-"+quarter+"-ms")
		}
	}
}
