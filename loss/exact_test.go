package loss_test

import (
	"encoding/binary"
	"flag"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/loss"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests, 0 for a new one")

// random returns a source and prints its seed.
func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, 1))
}

// finite returns a float64 of any exponent and sign, subnormals and ±0 included.
func finite(r *rand.Rand) float64 {
	for {
		if x := math.Float64frombits(r.Uint64()); x-x == 0 {
			return x
		}
	}
}

// bigSum adds with 2,400 bits of mantissa, more than any sum in these tests needs.
func bigSum(xs []float64) float64 {
	sum := new(big.Float).SetPrec(2400)
	for _, x := range xs {
		sum.Add(sum, new(big.Float).SetFloat64(x))
	}
	f, _ := sum.Float64()
	return f + 0 // a float has two zeros, an exact sum has one
}

func exactSum(xs []float64) *loss.Exact {
	var a loss.Exact
	for _, x := range xs {
		a.Add(x)
	}
	return &a
}

// requireBits compares every bit, so that +0 and -0 differ.
func requireBits(t *testing.T, want, got float64, about any) {
	t.Helper()
	require.Equal(t, math.Float64bits(want), math.Float64bits(got), "want %v, got %v: %v", want, got, about)
}

func TestExactKnownSums(t *testing.T) {
	const big, tiny = math.MaxFloat64, math.SmallestNonzeroFloat64
	ulp := math.Ldexp(1, 971) // ulp of the largest finite value
	for _, c := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"nothing", nil, 0},
		{"negative zero", []float64{math.Copysign(0, -1)}, 0},
		{"cancels to zero", []float64{1, -1}, 0},
		{"small survives large", []float64{1e308, tiny, -1e308}, tiny},
		{"small survives large, negative", []float64{-1e308, -tiny, 1e308}, -tiny},
		{"overflows and comes back", []float64{big, big, -big, -big, 1}, 1},
		{"overflows", []float64{big, big}, math.Inf(1)},
		{"overflows below", []float64{-big, -big}, math.Inf(-1)},
		{"half an ulp above the largest rounds to infinity", []float64{big, ulp / 2}, math.Inf(1)},
		{"a little less does not", []float64{big, ulp / 2, -tiny}, big},
		{"largest subnormal plus smallest is normal", []float64{0x1p-1022 - tiny, tiny}, 0x1p-1022},
		{"tie to even, down", []float64{1, 0x1p-53}, 1},
		{"tie to even, up", []float64{1 + 0x1p-52, 0x1p-53}, 1 + 0x1p-51},
		{"sticky bit far below a tie", []float64{1, 0x1p-53, tiny}, 1 + 0x1p-52},
		{"sticky bit far below a tie, other side", []float64{1, 0x1p-53, -tiny}, 1},
		{"sticky bit, negative", []float64{-1, -0x1p-53, -tiny}, -1 - 0x1p-52},
		{"rounding carries into the exponent", []float64{2 - 0x1p-52, 0x1p-53}, 2},
		{"0.1 ten times is not 1", slices.Repeat([]float64{0.1}, 10), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireBits(t, bigSum(c.in), exactSum(c.in).Float64(), "math/big")
			requireBits(t, c.want, exactSum(c.in).Float64(), "table")
		})
	}
}

func TestExactEveryPowerOfTwo(t *testing.T) {
	for e := -1074; e <= 1023; e++ {
		x := math.Ldexp(1, e)
		for _, v := range []float64{x, -x, math.Nextafter(x, math.Inf(1)), math.Nextafter(x, 0)} {
			requireBits(t, v+0, exactSum([]float64{v}).Float64(), e)
		}
		// A tie at every position, and the two neighbors of the tie.
		for _, add := range [][]float64{{x, x * 0x1p-53}, {x, x * 0x1p-53, math.SmallestNonzeroFloat64}, {x, x * 0x1.8p-52}} {
			requireBits(t, bigSum(add), exactSum(add).Float64(), add)
		}
	}
}

// TestExactRandom compares with math/big, and also with sums in another order and with a random
// split over accumulators merged in random order.
func TestExactRandom(t *testing.T) {
	r := random(t)
	kinds := []func() float64{
		func() float64 { return finite(r) },
		func() float64 { return math.Float64frombits(r.Uint64N(1<<52) | r.Uint64()&(1<<63)) }, // subnormal
		func() float64 { return r.NormFloat64() },
		func() float64 { return math.Copysign(math.MaxFloat64, r.NormFloat64()) },
		func() float64 { return math.Ldexp(r.Float64()-0.5, r.IntN(80)-40) },
	}
	for trial := range 400 {
		xs := make([]float64, 1+r.IntN(200))
		kind := kinds[trial%len(kinds)]
		for i := range xs {
			xs[i] = kind()
			if i > 0 && r.IntN(3) == 0 {
				xs[i] = -xs[r.IntN(i)] // cancellation
			}
		}
		want := bigSum(xs)
		first := exactSum(xs)
		requireBits(t, want, first.Float64(), "in order")

		r.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
		requireBits(t, want, exactSum(xs).Float64(), "shuffled")

		parts := make([]loss.Exact, 1+r.IntN(8))
		for _, x := range xs {
			parts[r.IntN(len(parts))].Add(x)
		}
		var whole, direct loss.Exact
		for _, i := range r.Perm(len(parts)) {
			whole.Merge(&parts[i])
		}
		requireBits(t, want, whole.Float64(), "merged")

		// The words are also the same, regardless of how the sum was computed.
		direct.Merge(first)
		require.Equal(t, direct, whole)
	}
}

// TestExactManyAdditions reaches large counts by doubling.
func TestExactManyAdditions(t *testing.T) {
	for _, x := range []float64{math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, -0x1.fffffffffffffp-30} {
		var a, b loss.Exact
		a.Add(x)
		b.Add(-x)
		for range 33 {
			a.Merge(&a)
			b.Merge(&b)
		}
		want, _ := new(big.Float).SetMantExp(big.NewFloat(x), 33).Float64()
		requireBits(t, want, a.Float64(), x)
		a.Add(x / 2)
		a.Merge(&b)
		requireBits(t, bigSum([]float64{x / 2}), a.Float64(), "the sum is finite again")
	}
}

// TestExactPropagatesCarries adds as often as possible before carries must be propagated, with numbers that set every
// bit of a limb. Twice as many must fit in a limb, because two such accumulators may be merged.
func TestExactPropagatesCarries(t *testing.T) {
	const most = 1<<29 - 1
	for _, x := range []float64{0x1.fffffffffffffp-1022, -0x1.fffffffffffffp-1022, -0x1.fffffffffffffp-990} {
		sum := func(n int64) float64 {
			exact := new(big.Float).SetPrec(200).SetFloat64(x)
			f, _ := exact.Mul(exact, new(big.Float).SetInt64(n)).Float64()
			return f
		}
		var a loss.Exact
		a.Add(x)
		loss.Repeat(&a, most)
		require.Equal(t, most, loss.Pending(&a))
		b := a
		requireBits(t, sum(most), a.Float64(), x)
		b.Merge(&a)
		requireBits(t, sum(2*most), b.Float64(), x)
		a.Add(x)
		require.Zero(t, loss.Pending(&a), "the addition settles")
		requireBits(t, sum(most+1), a.Float64(), x)
	}
}

// TestExactPropagatesCarriesInTime makes more additions than a limb could hold without propagating
// carries, with every bit of the low limb set.
func TestExactPropagatesCarriesInTime(t *testing.T) {
	if !*testkit.Long {
		t.Skip("3 * 2^30 additions, with -long")
	}
	const n, x = 1<<31 + 1<<30, 0x1.fffffffffffffp-1022 // 53 ones, from the lowest bit of a limb
	var a loss.Exact
	for range int64(n) {
		a.Add(x)
	}
	want := new(big.Float).SetPrec(200).SetFloat64(x)
	want.Mul(want, new(big.Float).SetInt64(n))
	f, _ := want.Float64()
	requireBits(t, f, a.Float64(), x)
}

func TestExactNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		a := exactSum([]float64{1, bad, 2})
		require.True(t, math.IsNaN(a.Float64()))
		var b loss.Exact
		b.Add(3)
		b.Merge(a)
		require.True(t, math.IsNaN(b.Float64()), "the mark survives a merge")
		b.Reset()
		b.Add(3)
		requireBits(t, 3, b.Float64(), "Reset clears it")
	}
}

func TestExactAllocatesNothing(t *testing.T) {
	var a, b loss.Exact
	var out float64
	require.Zero(t, testing.AllocsPerRun(100, func() {
		a.Add(1.5)
		b.Merge(&a)
		out += b.Float64()
	}))
}

func FuzzExact(f *testing.F) {
	word := func(xs ...float64) (b []byte) {
		for _, x := range xs {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
		return b
	}
	f.Add(word(1e308, 5e-324, -1e308), uint8(1))
	f.Add(word(1, 0x1p-53, 5e-324), uint8(2))
	f.Add(word(math.MaxFloat64, math.MaxFloat64, -1), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		var xs []float64
		for ; len(data) >= 8 && len(xs) < 256; data = data[8:] {
			if x := math.Float64frombits(binary.LittleEndian.Uint64(data)); x-x == 0 {
				xs = append(xs, x)
			}
		}
		at := min(int(cut), len(xs))
		a, b := exactSum(xs[:at]), exactSum(xs[at:])
		b.Merge(a)
		want := bigSum(xs)
		requireBits(t, want, b.Float64(), xs)
		requireBits(t, want, exactSum(xs).Float64(), xs)
	})
}
