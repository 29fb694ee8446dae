package kernels_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-ml/weir/kernels"
)

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
