package vector_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

var seedFlag = flag.Uint64("seed", 1, "seed of the random tests")

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// each runs a test for every set of this processor.
func each(t *testing.T, f func(t *testing.T, s vector.Set)) {
	for _, s := range sets() {
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
}

func random(t testing.TB) *rand.Rand {
	t.Helper()
	t.Logf("-seed %d", *seedFlag)
	return rand.New(rand.NewPCG(*seedFlag, 3))
}

// draws returns n numbers of mean 0 and the given standard deviation.
func draws(r *rand.Rand, n int, std float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(std * r.NormFloat64())
	}
	return x
}

// everywhere yields float32 values of all signs and exponents, many of each exponent, with denormal numbers,
// zeros, infinities and NaN. The slice is reused.
func everywhere(yield func([]float32) bool) {
	step, last := uint64(104_729), uint64(1)<<32
	if *testkit.Long {
		step = 1
	}
	x := []float32{0, float32(math.Copysign(0, -1)), inf, -inf, nan, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, math.MaxFloat32, -math.MaxFloat32}
	for bits := uint64(0); bits < last; bits += step {
		if x = append(x, math.Float32frombits(uint32(bits))); len(x) == 1<<16 {
			if !yield(x) {
				return
			}
			x = x[:0]
		}
	}
	yield(x)
}

// same requires equal bits. All NaNs count as equal.
func same(t *testing.T, want, got []float32, label string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			require.Failf(t, "bits differ", "%s: element %d is %v, want %v", label, i, got[i], want[i])
		}
	}
}

// requireNear requires |got - want| <= bound, and NaN if want is NaN.
func requireNear(t *testing.T, want, bound float64, got float32, label string, args ...any) {
	t.Helper()
	g := float64(got)
	if g == want || math.IsNaN(g) && math.IsNaN(want) || math.Abs(g-want) <= bound {
		return
	}
	require.Failf(t, "out of bounds", "%s is %v, want %v within %.3g", fmt.Sprintf(label, args...), got, want, bound)
}

// sets returns the sets of this processor that the build tags allow.
func sets() []vector.Set {
	list := []vector.Set{vector.Portable}
	if cpufeature.AVX2FMA || cpufeature.NEON {
		list = append(list, vector.AVX2)
	}
	if cpufeature.AVX512 {
		list = append(list, vector.AVX512)
	}
	return list
}
