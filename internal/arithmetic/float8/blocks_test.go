package float8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// spread returns numbers whose magnitudes differ from block to block.
func spread(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp2(float64(i/64%40-20)))
	}
	return x
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

// Slices round stochastically just as single numbers do, in every set, for small and for large scales.
func TestStochasticSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	draws := &vector.Philox{Seed: 7, Stream: 7}
	for _, f := range []*float8.Format{&float8.E4M3, &float8.E5M2} {
		for round, scale := range []float32{3, 1, 0x1p-140, 0x1p100, 0.37, 1e-30} {
			const n = 4096 + 37
			src := spread(r, n)
			for i := range src[:2048] {
				src[i] = math.Float32frombits(r.Uint32())
				if round > 0 && math.Abs(float64(src[i])) > math.MaxFloat32 || src[i] != src[i] {
					src[i] = 1
				}
			}
			if round == 0 {
				src[0], src[1] = 0, float32(math.Inf(-1))
			}
			m := float8.Open(make([]byte, float8.LayoutOf(float8.PerTensor, f, 1, n).Size), float8.PerTensor, f, 1, n)
			for _, s := range sets() {
				clear(m.Codes)
				tally := s.QuantizeRows(&m, src, &float8.Rule{Scale: scale, Random: draws}, 0, 1)
				underflowed := 0
				for i, x := range src {
					a, b, c, d := draws.Draw(uint64(i / 4))
					code := f.Stochastic(x*scale, [4]uint32{a, b, c, d}[i%4])
					if m.Codes[i] != code {
						require.Equal(t, code, m.Codes[i], "%v %s, element %d: %g times %g", s, f.Name, i, x, scale)
					}
					if code&^f.Sign == 0 && x != 0 {
						underflowed++
					}
				}
				require.Equal(t, underflowed, tally.Underflowed, "%v %s", s, f.Name)
			}
		}
	}
}

// Stochastic rounding rounds up exactly if the draw and the dropped fraction of a unit add up
// to at least one. The test takes each such boundary and its neighbors, in every lane.
func TestStochasticBoundaries(t *testing.T) {
	draws := &vector.Philox{Seed: 3}
	for _, f := range []*float8.Format{&float8.E4M3, &float8.E5M2} {
		var src []float32
		for code := range byte(f.Max) {
			low, step := f.Decode(code), f.Decode(code+1)-f.Decode(code)
			for i := range 64 {
				a, b, c, d := draws.Draw(uint64(len(src) / 4))
				u := [4]uint32{a, b, c, d}[len(src)%4]
				x := low + float32(float64(step)*(1-float64(u)*0x1p-32)) // rounds up unless it is below this value
				x = math.Float32frombits(math.Float32bits(x) + uint32(i%3) - 1)
				src = append(src, x*float32(1-2*(i&4)/4))
			}
		}
		n := len(src)
		want := float8.Open(make([]byte, float8.LayoutOf(float8.PerTensor, f, 1, n).Size), float8.PerTensor, f, 1, n)
		float8.Portable.QuantizeRows(&want, src, &float8.Rule{Scale: 1, Random: draws}, 0, 1)
		up := 0
		for i, x := range src {
			if math.Abs(float64(f.Decode(want.Codes[i]))) > math.Abs(float64(x)) {
				up++
			}
		}
		require.InDelta(t, n/2, up, float64(n/4), "as many on both sides")
		for _, s := range sets() {
			got := float8.Open(make([]byte, float8.LayoutOf(float8.PerTensor, f, 1, n).Size), float8.PerTensor, f, 1, n)
			s.QuantizeRows(&got, src, &float8.Rule{Scale: 1, Random: draws}, 0, 1)
			require.Equal(t, want.Codes, got.Codes, "%v %s", s, f.Name)
		}
	}
}

// matrixOfZeros returns a matrix to quantize into.
func matrixOfZeros(s float8.Scaling, f *float8.Format, rows, cols int) *float8.Matrix {
	m := float8.Open(make([]byte, float8.LayoutOf(s, f, rows, cols).Size), s, f, rows, cols)
	return &m
}

// Every set quantizes to the same codes and scales and returns the same tally, along rows and
// columns, to nearest and stochastically, for numbers of all magnitudes and for shapes around
// every edge of a block. All NaNs count as equal.
func TestQuantizeInEverySet(t *testing.T) {
	testkit.Slow(t)
	r := rand.New(rand.NewPCG(9, 9))
	for round := range 400 {
		form := forms[round%len(forms)]
		rows, cols := 1+r.IntN(200), 1+r.IntN(200)
		switch round % 4 {
		case 1:
			cols = 16 * (1 + r.IntN(20))
		case 2:
			rows, cols = 32*(1+r.IntN(8)), 128*(1+r.IntN(3))
		}
		x := numbers(r, rows*cols, round%9 == 0)
		if round%3 > 0 { // magnitudes that differ from block to block
			x = spread(r, rows*cols)
			for i := range x {
				x[i] *= float32(r.IntN(8) & 1 * r.IntN(3) * (i / 32 % 5 & 3)) // whole blocks are zero
			}
		}
		if round%5 == 4 {
			x[r.IntN(len(x))] = float32(math.Inf(1 - round%2*2))
		}
		rule := &float8.Rule{Scale: []float32{1, 0.3, 1e4, 0x1p60, 0x1p-70, 0x1p-100}[r.IntN(6)], Down: r.IntN(2) == 0, AnyScale: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			rule.Epsilon = 1e-3
		}
		if form.scaling == float8.NV16 && r.IntN(4) > 0 {
			rule.Scale = float8.TensorNV(math.Float32frombits(float8.Portable.Amax(x)))
		}
		if r.IntN(2) == 0 {
			rule.Random = &vector.Philox{Seed: uint64(round)}
		}
		row, column := matrixOfZeros(form.scaling, form.format, rows, cols), matrixOfZeros(form.scaling, form.format, cols, rows)
		tally := float8.Portable.QuantizeRows(row, x, rule, 0, rows)
		turned := float8.Portable.QuantizeColumns(column, x, rule, 0, cols)
		for _, s := range sets()[1:] {
			label := fmt.Sprintf("%v, %s/%d, %d×%d, round %d, %+v", s, form.format.Name, form.scaling, rows, cols, round, *rule)
			got := matrixOfZeros(form.scaling, form.format, rows, cols)
			require.Equal(t, tally, s.QuantizeRows(got, x, rule, 0, rows), label)
			sameQuantized(t, row, got, label)
			got = matrixOfZeros(form.scaling, form.format, cols, rows)
			require.Equal(t, turned, s.QuantizeColumns(got, x, rule, 0, cols), "transposed, "+label)
			sameQuantized(t, column, got, "transposed, "+label)
		}
	}
}

func sameQuantized(t *testing.T, want, got *float8.Matrix, label string) {
	t.Helper()
	for i, w := range want.Codes {
		nan := want.Format.Sign == 0x80 && w&0x7f > max(want.Format.Max, want.Format.Inf) && got.Codes[i]&0x7f > max(want.Format.Max, want.Format.Inf)
		if w != got.Codes[i] && !nan {
			require.Equal(t, w, got.Codes[i], "code %d: %s", i, label)
		}
	}
	require.Equal(t, want.Scales, got.Scales, label)
	sameNumbers(t, want.Factors, got.Factors, label)
}
