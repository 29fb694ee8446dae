package memory_test

import (
	"fmt"
	"testing"

	"github.com/weir-ml/weir/memory"
)

// BenchmarkArenaAlloc is Alloc and Release beside some live buffers with gaps
// between them.
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

// references is what a step does with a buffer that it hands on.
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
			if _, err := s.Yield(h); err != nil {
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

// BenchmarkArenaPlanned is Alloc and Release where a layout says the place, beside some
// live buffers.
func BenchmarkArenaPlanned(b *testing.B) {
	const births = 1000
	for _, live := range []int{0, 10, 1000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			a := open(b, 1<<30, 0)
			layout := &memory.Layout{Height: int64(live+1) * 4096, Places: []int32{0, int32(live), int32(live) + births}, Levels: make([]memory.Level, 2)}
			var marks uint64
			for i := range int64(live + births) {
				offset := min(i, int64(live)) * 4096
				layout.Births = append(layout.Births, memory.Birth{Offset: offset, Bytes: 4096, Class: memory.Saved, Live: marks})
				if i < int64(live) {
					marks += memory.Mark(offset, 4096)
				}
			}
			if err := a.Lay(layout); err != nil {
				b.Fatal(err)
			}
			a.At(0)
			for range live {
				alloc(b, a, memory.Saved, 4096)
			}
			b.ReportAllocs()
			left := 0
			for b.Loop() {
				if left == 0 {
					a.At(1)
					left = births
				}
				left--
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
