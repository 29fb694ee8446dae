package float8_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/float8"
)

// spread are rows whose magnitudes differ from block to block.
func spread(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp2(float64(i/64%40-20)))
	}
	return x
}

// Each kind of block comes back within half a step of its format at its greatest
// element, all sets agree to the bit, and the greatest element is not cut off.
func TestBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	src := spread(r, 5*256)
	const rows, cols = 5, 256
	for name, scaling := range map[string]float8.Scaling{"mx": float8.MX32, "rows": float8.Rows128, "tiles": float8.Tiles128} {
		run := func(s float8.Set) (codes []byte, back []float32, t float8.Tally) {
			m := float8.Open(make([]byte, float8.Size(scaling, &float8.E4M3, rows, cols)), scaling, &float8.E4M3, rows, cols)
			t, back = s.QuantizeRows(&m, src, &float8.Rule{}, 0, rows), make([]float32, len(src))
			s.Dequantize(back, &m, 0, rows)
			return m.Codes, back, t
		}
		codes, back, tally := run(float8.Portable)
		require.Zero(t, tally.Saturated, name)
		require.Zero(t, tally.NonFinite, name)
		block := map[string]int{"mx": 32, "rows": 128, "tiles": 128}[name]
		for i := range src {
			var amax float64
			for j := i / block * block; j < (i/block+1)*block; j++ {
				if name == "tiles" {
					for row := range rows {
						amax = max(amax, math.Abs(float64(src[row*cols+j%cols])))
					}
				} else {
					amax = max(amax, math.Abs(float64(src[j])))
				}
			}
			diff := math.Abs(float64(back[i] - src[i]))
			require.LessOrEqual(t, diff, math.Max(math.Abs(float64(src[i]))/16, amax*0x1p-17), "%s, element %d: %g is read as %g", name, i, src[i], back[i])
		}
		for _, s := range sets() {
			c, b, tl := run(s)
			require.Equal(t, codes, c, "%s %v", name, s)
			require.Equal(t, back, b, "%s %v", name, s)
			require.Equal(t, tally, tl, "%s %v", name, s)
		}
	}
}

func TestScaleMX(t *testing.T) {
	for _, f := range []*float8.Format{&float8.E4M3, &float8.E5M2} {
		r := rand.New(rand.NewPCG(2, 2))
		for range 100_000 {
			amax := math.Float32frombits(r.Uint32() &^ (1 << 31))
			if !(amax < float32(math.Inf(1))) {
				continue
			}
			quotient := float64(amax) / float64(f.Greatest())
			up := math.Ceil(math.Log2(quotient))
			if math.Exp2(up-1) >= quotient { // the logarithm is rounded
				up--
			} else if math.Exp2(up) < quotient {
				up++
			}
			want := float8.E8M0(max(0, up+127))
			require.Equal(t, want, f.ScaleMX(math.Float32bits(amax), true), "%s %g", f.Name, amax)
		}
	}
}

// NVFP4 against the formula in float32, one operation after the other.
func TestEncodeNV(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	src := spread(r, 64)
	src[3], src[20] = 0, float32(math.Copysign(0, -1))
	for i := 48; i < 64; i++ {
		src[i] = 0
	}
	var amax float32
	for _, x := range src {
		amax = max(amax, float32(math.Abs(float64(x))))
	}
	tensor := float8.TensorNV(amax)
	require.Equal(t, float32(2688)/amax, tensor)
	m, back := float8.Open(make([]byte, float8.Size(float8.NV16, &float8.E2M1, 1, 64)), float8.NV16, &float8.E2M1, 1, 64), make([]float32, 64)
	tally := float8.Portable.QuantizeRows(&m, src, &float8.Rule{Scale: tensor}, 0, 1)
	require.Equal(t, math.Float32bits(amax), tally.Amax)
	float8.Portable.Dequantize(back, &m, 0, 1)
	for b := range m.Scales {
		var most float32
		for _, x := range src[16*b:][:16] {
			most = max(most, float32(math.Abs(float64(x))))
		}
		sixth := float32(1.0) / 6
		product := tensor * sixth
		require.Equal(t, float8.E4M3.Encode(most*product, float8.Saturate), m.Scales[b])
		for i := 16 * b; i < 16*(b+1); i++ {
			require.LessOrEqual(t, math.Abs(float64(back[i]-src[i])), 0.21*float64(most)+1e-30, "element %d: %g is read as %g", i, src[i], back[i])
		}
	}
	// With random numbers on average what it was.
	sums := make([]float64, 64)
	const trials = 4000
	for range trials {
		float8.Portable.QuantizeRows(&m, src, &float8.Rule{Scale: tensor, Random: sequence{r}}, 0, 1)
		float8.Portable.Dequantize(back, &m, 0, 1)
		for i, x := range back {
			sums[i] += float64(x) / trials
		}
	}
	for i, x := range src[:16] {
		step := float64(float8.E4M3.Decode(m.Scales[0])) / float64(tensor) * 2
		if math.Abs(float64(x)) < 2.9*step { // what saturates is not
			require.InDelta(t, float64(x), sums[i], 5*step/math.Sqrt(trials), "element %d", i)
		}
	}
}

// Whole slices are rounded by chance as single numbers are, where rounding decides too.
func TestStochasticSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, f := range []*float8.Format{&float8.E4M3, &float8.E5M2} {
		src := spread(r, 4096)
		for i := range src[:2048] {
			src[i] = math.Float32frombits(r.Uint32())
		}
		src[0], src[1] = 0, float32(math.Inf(-1))
		m := float8.Open(make([]byte, float8.Size(float8.PerTensor, f, 1, 4096)), float8.PerTensor, f, 1, 4096)
		draws := sequence{rand.New(rand.NewPCG(7, 7))}
		tally := float8.Portable.QuantizeRows(&m, src, &float8.Rule{Scale: 3, Random: draws}, 0, 1)
		draws = sequence{rand.New(rand.NewPCG(7, 7))}
		underflowed := 0
		for i, x := range src {
			code := f.Stochastic(x*3, draws.Uint32(), float8.Saturate)
			require.Equal(t, code, m.Codes[i], "%s, element %d: %g", f.Name, i, x)
			if code&^f.Sign == 0 && x != 0 {
				underflowed++
			}
		}
		require.Equal(t, underflowed, tally.Underflowed, f.Name)
	}
}

// sequence is random numbers of a sequence.
type sequence struct{ *rand.Rand }

func (n sequence) Draw(uint64) (a, b, c, d uint32) {
	return n.Uint32(), n.Uint32(), n.Uint32(), n.Uint32()
}
