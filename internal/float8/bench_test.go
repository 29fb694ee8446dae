package float8_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-ml/weir/internal/float8"
)

// places are the elements that lie in the first-level cache with their codes, in the
// second, and in memory.
var places = []struct {
	name       string
	rows, cols int
}{{"L1", 32, 128}, {"L2", 128, 1024}, {"memory", 16 << 10, 1024}}

// BenchmarkSlice prints the elements a nanosecond of the median call, because others use
// the machine as well, of the fastest, and the bytes a nanosecond of the median. Beside the
// operations it copies the same source; amax is what reading it reaches.
func BenchmarkSlice(b *testing.B) {
	for _, s := range sets() {
		for _, place := range places {
			rows, cols := place.rows, place.cols
			n := rows * cols
			src := make([]float32, n)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range src {
				src[i] = float32(r.NormFloat64())
			}
			dst, back := make([]byte, n), make([]float32, n)
			matrix := func(scaling float8.Scaling, f *float8.Format, rows, cols int) *float8.Matrix {
				m := float8.Open(make([]byte, float8.Size(scaling, f, rows, cols)), scaling, f, rows, cols)
				return &m
			}
			mx, turnedMX := matrix(float8.MX32, &float8.E4M3, rows, cols), matrix(float8.MX32, &float8.E4M3, cols, rows)
			blocks, turned := matrix(float8.Rows128, &float8.E4M3, rows, cols), matrix(float8.Rows128, &float8.E4M3, cols, rows)
			tensor := matrix(float8.PerTensor, &float8.E4M3, cols, rows)
			nv := matrix(float8.NV16, &float8.E2M1, rows, cols)
			rule := float8.Rule{Scale: 100}
			for _, c := range []struct {
				name  string
				bytes float64 // of an element, read and written
				run   func()
			}{
				{"copy", 8, func() { copy(back, src) }},
				{"amax", 4, func() { s.Amax(src) }},
				{"encode e4m3", 5, func() { s.Encode(dst, src, &float8.E4M3, 100, float8.Saturate) }},
				{"encode e5m2", 5, func() { s.Encode(dst, src, &float8.E5M2, 100, float8.Saturate) }},
				{"decode e4m3", 5, func() { s.Decode(back, dst, &float8.E4M3, 0.01) }},
				{"decode e5m2", 5, func() { s.Decode(back, dst, &float8.E5M2, 0.01) }},
				{"mx32", 5 + 1.0/32, func() { s.QuantizeRows(mx, src, &rule, 0, rows) }},
				{"rows128", 5 + 4.0/128, func() { s.QuantizeRows(blocks, src, &rule, 0, rows) }},
				{"nv16", 4.5 + 1.0/16, func() { s.QuantizeRows(nv, src, &rule, 0, rows) }},
				{"tensor transposed", 5, func() { s.QuantizeColumns(tensor, src, &rule, 0, cols) }},
				{"mx32 transposed", 5 + 1.0/32, func() { s.QuantizeColumns(turnedMX, src, &rule, 0, cols) }},
				{"rows128 transposed", 5 + 4.0/128, func() { s.QuantizeColumns(turned, src, &rule, 0, cols) }},
				{"mx32 decode", 5 + 1.0/32, func() { s.Dequantize(back, mx, 0, rows) }},
				{"nv16 decode", 4.5 + 1.0/16, func() { s.Dequantize(back, nv, 0, rows) }},
			} {
				b.Run(fmt.Sprintf("%v/%s/%s", s, place.name, c.name), func(b *testing.B) { rate(b, n, c.bytes, c.run) })
			}
		}
	}
}

// rate reports how many elements a nanosecond the median of calls treats.
func rate(b *testing.B, elements int, bytes float64, f func()) {
	calls := max(1, (1<<18)/elements)
	f() // every page is there
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		for range calls {
			f()
		}
		times = append(times, time.Since(start))
	}
	all := float64(calls) * float64(elements)
	b.ReportMetric(all/float64(median(times).Nanoseconds()), "Gelement/s")
	b.ReportMetric(all/float64(slices.Min(times).Nanoseconds()), "Gelement/s-best")
	b.ReportMetric(all*bytes/float64(median(times).Nanoseconds()), "GB/s")
	b.ReportMetric(0, "ns/op")
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
