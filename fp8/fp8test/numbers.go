package fp8test

import "math"

// edges are numbers at which rounding decides: the values of the formats and what lies
// half way between two, and one float32 to each side of these.
var edges = func() (all []float32) {
	add := func(x float64) {
		bits := math.Float32bits(float32(x))
		for _, b := range []uint32{bits - 1, bits, bits + 1} {
			all = append(all, math.Float32frombits(b), -math.Float32frombits(b))
		}
	}
	for _, format := range []struct{ mantissa, least, most int }{{3, -6, 8}, {2, -14, 15}, {1, 0, 2}} {
		for exponent := format.least - 1; exponent <= format.most; exponent++ {
			steps := 2 << format.mantissa // half steps of a binade
			for i := range steps {
				if exponent < format.least { // subnormal
					add(math.Ldexp(float64(i+1)/float64(steps), format.least))
				} else {
					add(math.Ldexp(1+float64(i)/float64(steps), exponent))
				}
			}
		}
	}
	inf := float32(math.Inf(1))
	return append(all, 0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 0x1p-149, -0x1p-126, inf, -inf, float32(math.NaN()))
}()

// numbers draws a matrix: of edges, of ordinary numbers, or of such whose magnitudes differ
// from row to row and from block to block, in turn. Every second has nothing that is not
// finite.
func (p *pair) numbers(rows, cols, round int) []float32 {
	x := make([]float32, rows*cols)
	for i := range x {
		switch round % 4 {
		case 0, 1:
			x[i] = edges[p.rng.IntN(len(edges))]
		case 2:
			x[i] = float32(p.rng.NormFloat64())
		default:
			x[i] = float32(p.rng.NormFloat64() * math.Exp2(float64((i/cols*3+i%cols/16*5)%40-20)))
		}
		if p.rng.IntN(40) == 0 {
			x[i] = 0
		}
		if round%2 == 0 && !(math.Abs(float64(x[i])) <= math.MaxFloat32) {
			x[i] = 1
		}
	}
	return x
}

// shapes are rows and columns around the edges of blocks, and some by chance.
func (p *pair) shapes() [][2]int {
	all := [][2]int{{1, 1}, {2, 7}, {16, 16}, {33, 64}, {5, 129}, {128, 32}, {130, 145}, {64, 256}}
	for range 2 {
		all = append(all, [2]int{1 + p.rng.IntN(150), 1 + p.rng.IntN(300)})
	}
	return all
}
