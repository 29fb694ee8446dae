package float8_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// places are the numbers of elements that fit, with their codes, in the first-level cache, in
// the second-level cache and only in memory.
var places = []struct {
	name       string
	rows, cols int
}{{"L1", 32, 128}, {"L2", 128, 1024}, {"memory", 16 << 10, 1024}}

// BenchmarkSlice prints the elements per nanosecond of the median call in processor time,
// because other processes use the machine, the same for the fastest call, and the bytes per
// nanosecond of the median. From memory it also prints these bytes as a fraction of the rates
// of copying and amax, which it measures alternately in the same run.
func BenchmarkSlice(b *testing.B) {
	for _, s := range sets() {
		for _, place := range places {
			b.Run(fmt.Sprintf("%v/%s", s, place.name), func(b *testing.B) { sliceAt(b, s, place.name == "memory", place.rows, place.cols) })
		}
	}
}

// sliceAt runs BenchmarkSlice for one set and one place.
func sliceAt(b *testing.B, s float8.Set, memory bool, rows, cols int) {
	n := rows * cols
	src := make([]float32, n)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	dst, back := make([]byte, n), make([]float32, n)
	matrix := func(scaling float8.Scaling, f *float8.Format, rows, cols int) *float8.Matrix {
		return matrixOfZeros(scaling, f, rows, cols)
	}
	e4m3 := &float8.E4M3
	flat, tensor := matrix(float8.PerTensor, e4m3, rows, cols), matrix(float8.PerTensor, e4m3, cols, rows)
	mx, turnedMX := matrix(float8.MX32, e4m3, rows, cols), matrix(float8.MX32, e4m3, cols, rows)
	blocks, turned := matrix(float8.Rows128, e4m3, rows, cols), matrix(float8.Rows128, e4m3, cols, rows)
	nv, turnedNV := matrix(float8.NV16, &float8.E2M1, rows, cols), matrix(float8.NV16, &float8.E2M1, cols, rows)
	rule := float8.Rule{Scale: 50}
	chance := float8.Rule{Scale: 50, Random: &vector.Philox{Seed: 1}}
	ways := []way{
		{"copy", 8, func() { copy(back, src) }},
		{"amax", 4, func() { s.Amax(src) }},
		{"encode e4m3", 5, func() { s.Encode(dst, src, nil, e4m3, 50) }},
		{"encode e5m2", 5, func() { s.Encode(dst, src, nil, &float8.E5M2, 50) }},
		{"decode e4m3", 5, func() { s.Dequantize(back, flat, 0, rows) }},
		{"decode e5m2", 5, func() { s.Decode(back, dst, &float8.E5M2, 0.01) }},
		{"mx32", 5 + 1.0/32, func() { s.QuantizeRows(mx, src, &rule, 0, rows) }},
		{"rows128", 5 + 4.0/128, func() { s.QuantizeRows(blocks, src, &rule, 0, rows) }},
		{"nv16", 4.5 + 1.0/16, func() { s.QuantizeRows(nv, src, &rule, 0, rows) }},
		{"tensor by chance", 5, func() { s.QuantizeRows(flat, src, &chance, 0, rows) }},
		{"nv16 by chance", 4.5 + 1.0/16, func() { s.QuantizeRows(nv, src, &chance, 0, rows) }},
		{"tensor transposed", 5, func() { s.QuantizeColumns(tensor, src, &rule, 0, cols) }},
		{"mx32 transposed", 5 + 1.0/32, func() { s.QuantizeColumns(turnedMX, src, &rule, 0, cols) }},
		{"rows128 transposed", 5 + 4.0/128, func() { s.QuantizeColumns(turned, src, &rule, 0, cols) }},
		{"nv16 transposed", 4.5 + 1.0/16, func() { s.QuantizeColumns(turnedNV, src, &rule, 0, cols) }},
		{"nv16 transposed by chance", 4.5 + 1.0/16, func() { s.QuantizeColumns(turnedNV, src, &chance, 0, cols) }},
		{"mx32 decode", 5 + 1.0/32, func() { s.Dequantize(back, mx, 0, rows) }},
		{"nv16 decode", 4.5 + 1.0/16, func() { s.Dequantize(back, nv, 0, rows) }},
	}
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			others := ways[:2]
			if !memory {
				others = nil
			}
			w.rate(b, n, others)
		})
	}
}

// way is an operation on elements, with the bytes that it reads and writes per element.
type way struct {
	name  string
	bytes float64
	run   func()
}

// rate reports how many elements per nanosecond the median and the fastest call process, and the
// bytes per nanosecond of the median. It also reports the ratios of these to the bytes per
// nanosecond of the other operations, which run alternately with it.
func (w way) rate(b *testing.B, elements int, others []way) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := max(1, (1<<18)/elements)
	all := append([]way{w}, others...)
	for _, w := range all {
		w.run() // touch every page
	}
	times := make([][]time.Duration, len(all))
	for b.Loop() {
		for i, w := range all {
			start := processorTime()
			for range calls {
				w.run()
			}
			times[i] = append(times[i], processorTime()-start)
		}
	}
	treated := float64(calls) * float64(elements)
	nanoseconds := float64(median(times[0]))
	b.ReportMetric(treated/nanoseconds, "Gelement/s")
	b.ReportMetric(treated/float64(slices.Min(times[0])), "Gelement/s-best")
	b.ReportMetric(treated*w.bytes/nanoseconds, "GB/s")
	for i, other := range others {
		b.ReportMetric(w.bytes/nanoseconds/(other.bytes/float64(median(times[i+1]))), "of-"+other.name)
	}
	b.ReportMetric(0, "ns/op")
}

// processorTime is the processor time that this thread has used.
func processorTime() time.Duration {
	const thread = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, thread, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
