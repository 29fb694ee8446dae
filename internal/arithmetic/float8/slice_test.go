package float8_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/float8"
)

func sets() []float8.Set {
	all := []float8.Set{float8.Portable}
	if cpufeature.AVX2FMA || cpufeature.NEON {
		all = append(all, float8.AVX2)
	}
	if cpufeature.AVX512 {
		all = append(all, float8.AVX512)
	}
	return all
}

var wide = []*float8.Format{&float8.E4M3, &float8.E5M2}

// numbers returns numbers of all magnitudes, including special values if special is set.
func numbers(r *rand.Rand, n int, special bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		bits := r.Uint32()
		switch r.IntN(8) {
		case 0: // any float32
		case 1:
			bits &= 1<<31 | 0x7fffff // subnormal
		default: // around the ranges of the formats
			bits = bits&(1<<31|0x7fffff) | uint32(127-20+r.IntN(40))<<23
		}
		if bits&0x7f800000 == 0x7f800000 && !special {
			bits &^= 1 << 30
		}
		x[i] = math.Float32frombits(bits)
	}
	return x
}

// Every set gives the same bits and tally as encoding element by element, for all lengths below
// 200 and scales of all magnitudes.
func TestEncodeSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, s := range sets() {
		for _, f := range wide {
			for n := range 200 {
				src := numbers(r, n, n%3 == 0)
				scale := []float32{1, 0.37, 0x1p-140, 0x1p100, 0, float32(math.Inf(1))}[r.IntN(6)]
				dst := make([]byte, n)
				tally := s.Encode(dst, src, nil, f, scale)
				var want float8.Tally
				for i, x := range src {
					product := x * scale
					code := f.Encode(product, float8.Saturate)
					require.Equal(t, code, dst[i], "%v %s %d: %g times %g", s, f.Name, i, x, scale)
					a := math.Float32bits(x) &^ (1 << 31)
					want.Amax = max(want.Amax, a)
					greatest := float64(f.Greatest()) * (1 + math.Exp2(float64(-f.Mantissa-2))) // the first magnitude that rounds up to beyond it
					switch {
					case a >= 0x7f800000:
						want.NonFinite++
					case f.Decode(code) == 0 && x != 0:
						want.Underflowed++
					case math.Abs(float64(product)) > greatest && f.Encode(product, float8.Overflows)&0x7f > f.Max:
						want.Saturated++
					}
				}
				require.Equal(t, want, tally, "%v %s %d elements times %g", s, f.Name, n, scale)
			}
		}
	}
}

// Vector and scalar rounding are most likely to differ at half a unit: all such boundaries, in
// every lane.
func TestEncodeBoundaries(t *testing.T) {
	for _, s := range sets() {
		for _, f := range wide {
			var src []float32
			for code := range byte(f.Max) {
				middle := (f.Decode(code) + f.Decode(code+1)) / 2
				for _, off := range []int32{-1, 0, 1} {
					x := math.Float32frombits(uint32(int32(math.Float32bits(middle)) + off))
					src = append(src, x, -x)
				}
			}
			src = append(src, 464, -464, 464.00003, 61440, -61440, 61439.996, 0x1p-10, 0x1p-17, math.MaxFloat32)
			for shift := range 16 {
				dst := make([]byte, len(src)-shift)
				s.Encode(dst, src[shift:], nil, f, 1)
				for i, x := range src[shift:] {
					require.Equal(t, f.Encode(x, float8.Saturate), dst[i], "%v %s %g", s, f.Name, x)
				}
			}
		}
	}
}

func TestDecodeSlices(t *testing.T) {
	codes := make([]byte, 256+16)
	for i := range codes {
		codes[i] = byte(i)
	}
	for _, s := range sets() {
		for _, f := range []*float8.Format{&float8.E4M3, &float8.E5M2} {
			for _, scale := range []float32{1, 0.37, 0x1p-140, 0x1p112, 0x1p113, 0x1p119, 0x1p120, -0x1p127, -2, float32(math.Inf(1))} {
				for from := range 17 {
					dst := make([]float32, 256-from)
					s.Decode(dst, codes[from:256], f, scale)
					for i, x := range dst {
						value := f.Decode(codes[from+i])
						want := value * scale
						if math.IsInf(float64(want), 0) && !math.IsInf(float64(value), 0) && !math.IsInf(float64(scale), 0) {
							want = float32(math.Copysign(math.MaxFloat32, float64(want)))
						}
						if want == want {
							require.Equal(t, math.Float32bits(want), math.Float32bits(x), "%v %s %#x times %g", s, f.Name, codes[from+i], scale)
						} else {
							require.True(t, x != x, "%v %s %#x", s, f.Name, codes[from+i])
						}
					}
				}
			}
		}
	}
}

func TestAmaxOfSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, s := range sets() {
		require.Zero(t, s.Amax(nil))
		for n := 1; n < 200; n++ {
			src := numbers(r, n, n%2 == 0)
			var want uint32
			for _, x := range src {
				want = max(want, math.Float32bits(x)&^(1<<31))
			}
			require.Equal(t, want, s.Amax(src), "%v, %d elements", s, n)
		}
	}
}
