package float8_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

var formats = []*float8.Format{&float8.E4M3, &float8.E5M2, &float8.E2M1}

// TestSpecialValues has values from the tables of the formats: the OCP specifications as given in ml_dtypes,
// PyTorch and ONNX.
func TestSpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		format *float8.Format
		code   byte
		want   float32
	}{
		{&float8.E4M3, 0x00, 0}, {&float8.E4M3, 0x01, 0x1p-9}, {&float8.E4M3, 0x07, 0.875 * 0x1p-6}, {&float8.E4M3, 0x08, 0x1p-6},
		{&float8.E4M3, 0x38, 1}, {&float8.E4M3, 0x7e, 448},
		{&float8.E5M2, 0x00, 0}, {&float8.E5M2, 0x01, 0x1p-16}, {&float8.E5M2, 0x03, 0.75 * 0x1p-14}, {&float8.E5M2, 0x04, 0x1p-14},
		{&float8.E5M2, 0x3c, 1}, {&float8.E5M2, 0x7b, 57344}, {&float8.E5M2, 0x7c, inf},
		{&float8.E2M1, 0x0, 0}, {&float8.E2M1, 0x1, 0.5}, {&float8.E2M1, 0x2, 1}, {&float8.E2M1, 0x3, 1.5}, {&float8.E2M1, 0x4, 2},
		{&float8.E2M1, 0x5, 3}, {&float8.E2M1, 0x6, 4}, {&float8.E2M1, 0x7, 6},
	} {
		same(t, float64(c.want), float64(c.format.Decode(c.code)), "%s %#x", c.format.Name, c.code)
		same(t, -float64(c.want), float64(c.format.Decode(c.code|c.format.Sign)), "%s -%#x", c.format.Name, c.code)
	}
	for _, code := range []byte{0x7f, 0xff} {
		require.True(t, float8.E4M3.Decode(code) != float8.E4M3.Decode(code))
	}
	for _, code := range []byte{0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff} {
		require.True(t, float8.E5M2.Decode(code) != float8.E5M2.Decode(code))
	}
	require.Equal(t, float32(448), float8.E4M3.Greatest())
	require.Equal(t, float32(0x1p-14), float8.E5M2.LeastNormal())
}

// reference encodes by searching a sorted list for the nearest value, in float64.
type reference struct {
	*float8.Format
	values []float64 // of the codes from 0 to Max
	last   int       // the result of the last search: most searches begin near it
}

func newReference(f *float8.Format) *reference {
	r := &reference{Format: f}
	for code := range int(f.Max) + 1 {
		m, e := code&(1<<f.Mantissa-1), code>>f.Mantissa
		value := float64(m) * math.Pow(2, float64(1-f.Bias-f.Mantissa))
		if e > 0 {
			value = (1 + float64(m)/float64(int(1)<<f.Mantissa)) * math.Pow(2, float64(e-f.Bias))
		}
		r.values = append(r.values, value)
	}
	return r
}

func (r *reference) encode(x float32, o float8.Overflow) byte {
	var sign byte
	if math.Signbit(float64(x)) {
		sign = r.Sign
	}
	a := math.Abs(float64(x))
	top := float64(r.Max)
	beyond := r.values[int(top)] + (r.values[int(top)]-r.values[int(top)-1])/2 // half a unit above the greatest
	above := r.NaN
	if r.Inf != 0 {
		above = r.Inf
	}
	switch {
	case a != a:
		return r.NaN | sign
	case a > beyond || a == beyond && r.Max&1 == 1 || math.IsInf(a, 0):
		if o == float8.Saturate {
			return r.Max | sign
		}
		return above | sign
	}
	if r.last == len(r.values) || r.values[r.last] < a || r.last > 0 && r.values[r.last-1] >= a {
		r.last = sort.SearchFloat64s(r.values, a) // the first value that is not below a
	}
	i := r.last
	switch {
	case i == len(r.values):
		i--
	case i > 0 && (a-r.values[i-1] < r.values[i]-a || a-r.values[i-1] == r.values[i]-a && i&1 == 1):
		i--
	}
	return byte(i) | sign
}

// nearest returns the value of the format nearest to x.
func (r *reference) nearest(x float32) float64 {
	return float64(r.Decode(r.encode(x, float8.Saturate)))
}

// TestEncode compares with the reference on a stride over all float32, and around every value
// of the format and every midpoint of two; with -long on all float32.
func TestEncode(t *testing.T) {
	for _, f := range formats {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			r := newReference(f)
			same := func(bits uint32) {
				x := math.Float32frombits(bits)
				for _, o := range []float8.Overflow{float8.Saturate, float8.Overflows} {
					if got, want := f.Encode(x, o), r.encode(x, o); got != want {
						t.Fatalf("%x (%g) becomes %#x, want %#x (overflow %d)", bits, x, got, want, o)
					}
				}
			}
			stride := uint64(1<<12 + 1)
			if *testkit.Long {
				stride = 1
			}
			for bits := uint64(0); bits < 1<<32; bits += stride {
				same(uint32(bits))
			}
			for i := range r.values {
				middle := (r.values[i] + r.values[min(i+1, len(r.values)-1)]) / 2
				for _, edge := range []float64{r.values[i], middle} {
					for off := range uint32(9) {
						bits := math.Float32bits(float32(edge)) + off - 4
						same(bits)
						same(bits ^ 1<<31)
					}
				}
			}
			for _, bits := range []uint32{0, 1, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff} {
				same(bits)
				same(bits | 1<<31)
			}
		})
	}
}

// Every code of a number encodes back to itself.
func TestRoundTrip(t *testing.T) {
	for _, f := range formats {
		for code, value := range f.Table() {
			if value == value && code < 2*int(f.Sign) {
				require.Equal(t, byte(code), f.Encode(value, float8.Overflows), "%s %#x", f.Name, code)
				if value-value == 0 {
					require.Equal(t, byte(code), f.Stochastic(value, math.MaxUint32), "%s %#x", f.Name, code)
				}
			}
		}
	}
}

// TestStochastic searches for the smallest random number that rounds up. The random numbers from
// there on must be the expected fraction, and every result of the search must be one of the two
// neighbors.
func TestStochastic(t *testing.T) {
	testkit.Slow(t)
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for _, f := range formats {
		ref := newReference(f)
		for range 20_000 {
			x := float32(math.Exp2(r.Float64()*float64(f.Bias+f.Mantissa+6)-float64(f.Bias+f.Mantissa+3))) * (1 + r.Float32())
			if x >= f.Greatest() {
				continue
			}
			above := sort.SearchFloat64s(ref.values, float64(x))
			if ref.values[above] == float64(x) {
				continue
			}
			low, high := byte(above-1), byte(above)
			part := (float64(x) - ref.values[low]) / (ref.values[high] - ref.values[low])
			// The smallest random number that rounds up, by bisection.
			from, to := uint64(0), uint64(1)<<32
			for from < to {
				if mid := (from + to) / 2; f.Stochastic(x, uint32(mid)) == high {
					to = mid
				} else {
					require.Equal(t, low, f.Stochastic(x, uint32(mid)))
					from = mid + 1
				}
			}
			require.InDelta(t, part*(1<<32), float64(1<<32-from), 1, "%s %g", f.Name, x)
			require.Equal(t, low|f.Sign, f.Stochastic(-x, 0))
		}
	}
	require.Equal(t, byte(0x7e), float8.E4M3.Stochastic(1000, 1))
	require.Equal(t, byte(0x7b), float8.E5M2.Stochastic(float32(math.Inf(1)), 1))
	require.Equal(t, byte(0), float8.E5M2.Stochastic(0x1p-149, math.MaxUint32))
}

func TestScales(t *testing.T) {
	for code := range 255 {
		require.Equal(t, float32(math.Ldexp(1, code-127)), float8.E8M0(code).Float32())
	}
	require.Equal(t, float32(0x1p-127), float8.E8M0(254).Reciprocal())
	require.Equal(t, float32(0x1p126), float8.E8M0(1).Reciprocal())
	require.Equal(t, float32(0x1p127), float8.E8M0(0).Reciprocal())
	for _, nan := range []float32{float8.NaNScale.Float32(), float8.NaNScale.Reciprocal()} {
		require.True(t, nan != nan)
	}
}
