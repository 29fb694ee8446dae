package kernels_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-ml/weir/internal/arithmetic/fmapeak"
	"github.com/weir-ml/weir/kernels"
)

// productShapes are the shapes of training (forward pass, gradient of the input, gradient of
// the weight), both large ones and small ones as in the example, and shapes that other projects
// publish.
var productShapes = []kernels.MatMul{
	{M: 512, N: 512, K: 512},
	{M: 1024, N: 1024, K: 1024},
	{M: 768, N: 768, K: 3072},
	{M: 768, N: 3072, K: 768},
	{M: 256, N: 50257, K: 256, TransB: true},
	{M: 256, N: 1024, K: 256},
	{M: 256, N: 256, K: 1024, TransB: true},
	{M: 256, N: 1024, K: 256, TransA: true, Accumulate: true},
	{M: 64, N: 4096, K: 256, TransB: true},
	{M: 32, N: 256, K: 64},
	{M: 32, N: 64, K: 256, TransB: true},
	{M: 64, N: 256, K: 32, TransA: true, Accumulate: true},
	{M: 32, N: 256, K: 64, TransB: true},
	{M: 1, N: 256, K: 64},
}

// BenchmarkProduct prints the rate of the fastest call, because other processes use the
// machine, and its fraction of the rate of a loop of FMAs on the same number of cores in the
// same minute.
func BenchmarkProduct(b *testing.B) {
	for _, set := range []kernels.Instructions{kernels.AVX512, kernels.AVX2, kernels.NEON, kernels.Portable} {
		if !set.Available() {
			continue
		}
		lanes := map[kernels.Instructions]int{kernels.AVX512: 16, kernels.AVX2: 8}[set]
		for _, threads := range []int{1, 2} {
			x := newBenchWith(b, kernels.HostConfig{Capacity: 1 << 30, Instructions: set, Threads: threads})
			for _, op := range productShapes {
				name := fmt.Sprintf("%s/threads=%d/%dx%dx%d", set, threads, op.M, op.N, op.K)
				for form, is := range map[string]bool{"/Aᵀ": op.TransA, "/Bᵀ": op.TransB} {
					if is {
						name += form
					}
				}
				b.Run(name, func(b *testing.B) {
					defer x.Reclaim(x.Mark())
					op.A, op.B, op.C = x.random(op.M*op.K), x.random(op.K*op.N), x.random(op.M*op.N)
					flops := 2 * float64(op.M) * float64(op.N) * float64(op.K)
					calls := 1 + int(2e7/flops) // enough to make the cost of reading the clock negligible
					fastest := time.Hour
					for b.Loop() {
						start := time.Now()
						for range calls {
							if err := x.MatMul(op); err != nil {
								b.Fatal(err)
							}
						}
						fastest = min(fastest, time.Since(start))
					}
					rate := flops * float64(calls) / float64(fastest.Nanoseconds())
					b.ReportMetric(rate, "GFLOP/s")
					if peak := fmapeak.GFLOPS(lanes) * float64(threads); peak > 0 {
						b.ReportMetric(100*rate/peak, "%peak")
					}
				})
			}
		}
	}
}

// BenchmarkQuantizedProduct prints the rate of the fastest call, and the rate of the float32
// product of the same shape, measured alternately.
func BenchmarkQuantizedProduct(b *testing.B) {
	for _, set := range []kernels.Instructions{kernels.AVX512, kernels.AVX2, kernels.NEON, kernels.Portable} {
		if !set.Available() {
			continue
		}
		for _, s := range [][3]int{{512, 512, 512}, {1024, 1024, 1024}, {256, 1024, 256}, {256, 256, 1024}, {64, 4096, 256}, {32, 256, 64}} {
			for _, e := range []kernels.Encoding{{}, {Scaling: kernels.Rows128}, {Scaling: kernels.MX32}, {Format: kernels.E2M1, Scaling: kernels.NV16}} {
				m, n, k := s[0], s[1], s[2]
				b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", set, e, m, n, k), func(b *testing.B) {
					x := newBenchWith(b, kernels.HostConfig{Instructions: set})
					op := kernels.QuantizedMatMul{
						A: x.quantized(e, m, k), B: x.quantized(e, n, k), C: x.random(m * n),
						Workspace: x.random(x.QuantizedWorkspace(m, n, k)), M: m, N: n, K: k,
					}
					plain := kernels.MatMul{A: x.random(m * k), B: x.random(k * n), C: op.C, M: m, N: n, K: k, TransB: true}
					flops := 2 * float64(m) * float64(n) * float64(k)
					calls := 1 + int(2e7/flops)
					fastest := func(best time.Duration, f func() error) time.Duration {
						start := time.Now()
						for range calls {
							if err := f(); err != nil {
								b.Fatal(err)
							}
						}
						return min(best, time.Since(start))
					}
					low, full := time.Hour, time.Hour
					for b.Loop() {
						low = fastest(low, func() error { return x.QuantizedMatMul(op) })
						full = fastest(full, func() error { return x.MatMul(plain) })
					}
					b.ReportMetric(flops*float64(calls)/float64(low.Nanoseconds()), "GFLOP/s")
					b.ReportMetric(flops*float64(calls)/float64(full.Nanoseconds()), "float32-GFLOP/s")
				})
			}
		}
	}
}
