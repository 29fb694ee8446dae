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
