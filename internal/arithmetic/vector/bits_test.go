package vector_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// TestBits compares the functions, on every architecture, with their bits on amd64. The bits of plain Go would
// change if a compiler fused a product and a sum. The bits of assembly do not depend on the width of registers.
// The inputs of assembly have all magnitudes, infinities and NaN. All NaNs count as equal.
func TestBits(t *testing.T) {
	each(t, func(t *testing.T, s vector.Set) {
		want := "2163bbb9230dc655d8114088a5727759a0d827d66fc18de528c7fbb2a1574759"
		if s != vector.Portable {
			want = "6f84b437fee8d29f09fe2bae86a3a044fa4774623ab59765cdb817b4d7b590e2"
		}
		require.Equal(t, want, bitsOf(t, s))
	})
}

// bitsOf returns a hash of the results of a set's functions on fixed numbers.
func bitsOf(t *testing.T, s vector.Set) string {
	const n = 257
	r := rand.New(rand.NewPCG(1, 2))
	numbers := func() []float32 { // of magnitudes up to 8
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(int32(r.Uint32())) * 0x1p-31 * float32(uint32(8)>>r.IntN(4))
		}
		return x
	}
	sum := sha256.New()
	note := func(values ...any) {
		for _, v := range values {
			require.NoError(t, binary.Write(sum, binary.LittleEndian, v))
		}
	}
	a, b, c, d, e := numbers(), numbers(), numbers(), numbers(), numbers()
	run := func(f func(y, x []float32)) {
		y, x := append([]float32(nil), a...), append([]float32(nil), b...)
		f(y, x)
		note(y, x)
	}
	run(func(y, x []float32) { s.Exp(y, 0.1, 0.7) })
	run(func(y, x []float32) { s.ExpAdd(y, c, x) })
	run(func(y, x []float32) { s.ExpGrad(y, x, c, d, 0.3) })
	run(func(y, x []float32) { s.GELU(y, x) })
	run(func(y, x []float32) { s.GELUGrad(y, c, x) })
	run(func(y, x []float32) { s.Normalise(y, x, c, d, 0.1, 0.9) })
	run(func(y, x []float32) { s.NormGrad(y, x, c, d, 0.1, 0.9, 0.2, 0.3) })
	run(func(y, x []float32) { s.NormGain(y, x, c, 0.1, 0.9) })
	run(func(y, x []float32) {
		m, v := append([]float32(nil), d...), append([]float32(nil), e...)
		for i := range v {
			v[i] *= v[i]
		}
		s.Update(y, x, m, v, &vector.AdamW{
			Factor: 0.37, Beta1: 0.9, Rest1: 0.1, Beta2: 0.95, Rest2: 0.05, Correct1: 1.7, Correct2: 3.1, Epsilon: 1e-8, Rate: 1e-3, Decay: 0.1,
		})
		note(m, v)
	})
	run(func(y, x []float32) {
		of := func(data []float32) vector.Matrix { return vector.Matrix{Data: data, Row: 16, Col: 1} }
		s.MulAdd(y, 16, of(x), of(c), 16, 16, 16, vector.Full, true)
	})
	g, gn := s.NormSums(a, b, c, 0.1, 0.9)
	note(g, gn, s.SumExp(a, 0.1), s.Total(a), s.Squares(a, 0.1), s.Dot(a, b))
	if s != vector.Portable {
		var all []float32
		for x := range everywhere {
			all = append(all, x...)
		}
		for _, f := range elementwise {
			slices := make([][]float32, f.slices)
			for i := range slices { // every number is combined with others in different lanes
				at := i * len(all) * 5 / 23
				slices[i] = append(append([]float32(nil), all[at:]...), all[:at]...)
			}
			f.run(s, slices)
			for _, x := range slices[:f.results] {
				for i, v := range x {
					if v != v {
						x[i] = nan
					}
				}
				note(x)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}
