package vector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// elementwise lists the elementwise functions. All slices have equal length; results come first.
var elementwise = []struct {
	name            string
	slices, results int
	run             func(s vector.Set, x [][]float32)
}{
	{"Add", 2, 1, func(s vector.Set, x [][]float32) { s.Add(x[0], x[1]) }},
	{"Sum", 3, 1, func(s vector.Set, x [][]float32) { s.Sum(x[0], x[1], x[2]) }},
	{"Scale", 2, 1, func(s vector.Set, x [][]float32) { s.Scale(x[0], x[1], 0.3) }},
	{"Larger", 2, 1, func(s vector.Set, x [][]float32) { s.Larger(x[0], x[1]) }},
	{"Exp", 1, 1, func(s vector.Set, x [][]float32) { s.Exp(x[0], 0.2, 1.7) }},
	{"ExpAdd", 3, 2, func(s vector.Set, x [][]float32) { s.ExpAdd(x[0], x[2], x[1]) }},
	{"ExpGrad", 4, 2, func(s vector.Set, x [][]float32) { s.ExpGrad(x[0], x[1], x[2], x[3], 0.3) }},
	{"Rescale", 4, 3, func(s vector.Set, x [][]float32) { s.Rescale(x[0], x[1], x[3], x[2]) }},
	{"GELU", 2, 1, func(s vector.Set, x [][]float32) { s.GELU(x[0], x[1]) }},
	{"GELUGrad", 3, 1, func(s vector.Set, x [][]float32) { s.GELUGrad(x[0], x[1], x[2]) }},
	{"Normalise", 4, 1, func(s vector.Set, x [][]float32) { s.Normalise(x[0], x[1], x[2], x[3], 0.1, 1.3) }},
	{"NormGrad", 4, 1, func(s vector.Set, x [][]float32) { s.NormGrad(x[0], x[1], x[2], x[3], 0.1, 1.3, 0.2, 0.3) }},
	{"NormGain", 3, 1, func(s vector.Set, x [][]float32) { s.NormGain(x[0], x[1], x[2], 0.1, 1.3) }},
	{"Update", 4, 3, func(s vector.Set, x [][]float32) { s.Update(x[0], x[3], x[1], x[2], &update) }},
}

var update = vector.AdamW{
	Factor: 0.5, Beta1: 0.9, Rest1: 0.1, Beta2: 0.99, Rest2: 0.01,
	Correct1: 2, Correct2: 3, Epsilon: 1e-8, Rate: 0.01, Decay: 0.1,
}

// reductions lists the functions that reduce slices to numbers.
var reductions = []struct {
	name string
	run  func(s vector.Set, x, y []float32) float64
}{
	{"Total", func(s vector.Set, x, _ []float32) float64 { return s.Total(x) }},
	{"Squares", func(s vector.Set, x, _ []float32) float64 { return s.Squares(x, 0.3) }},
	{"Dot", func(s vector.Set, x, y []float32) float64 { return s.Dot(x, y) }},
	{"SumExp", func(s vector.Set, x, _ []float32) float64 { return s.SumExp(x, 0.3) }},
	{"Largest", func(s vector.Set, x, _ []float32) float64 { return float64(s.Largest(x)) }},
	{"NormSums", func(s vector.Set, x, y []float32) float64 {
		g, gn := s.NormSums(x, y, y, 0.1, 1.3)
		return g + 3*gn
	}},
}

const longest = 67

// spoiled returns a slice within another one, whose other elements are NaN.
func spoiled(x []float32, begin int) (part, all []float32) {
	all = make([]float32, begin+len(x)+20)
	for i := range all {
		all[i] = nan
	}
	copy(all[begin:], x)
	return all[begin:][:len(x):len(x)], all
}

// An element has the same bits in any slice at any position: in the tail, in a full register,
// aligned or not. Elements outside of a slice have no effect and are not changed.
func TestElementsStandAlone(t *testing.T) {
	r := random(t)
	var x [4][]float32
	for i := range x {
		x[i] = draws(r, longest, 1)
		for j := range x[i] {
			if i == 2 {
				x[i][j] *= x[i][j] // the second moment of AdamW
			}
		}
	}
	each(t, func(t *testing.T, s vector.Set) {
		for _, f := range elementwise {
			whole := make([][]float32, f.slices)
			for i := range whole {
				whole[i] = append([]float32{}, x[i]...)
			}
			f.run(s, whole)
			for begin := 0; begin < 20; begin += 5 {
				for n := 0; n <= longest-begin; n++ {
					parts, alls := make([][]float32, f.slices), make([][]float32, f.slices)
					for i := range parts {
						parts[i], alls[i] = spoiled(x[i][begin:][:n], (begin*7+i*3)%20)
					}
					f.run(s, parts)
					for i := range f.results {
						same(t, whole[i][begin:][:n], parts[i], f.name)
					}
					for i := range parts {
						for j, v := range alls[i] {
							at := j - (begin*7+i*3)%20
							if v == v && (at < 0 || at >= n) {
								require.Failf(t, "wrote beside", "%s of %d, slice %d", f.name, n, i)
							}
						}
					}
				}
			}
		}
	})
}

// A reduction depends only on the elements, not on their address.
func TestReductionsDoNotFeelWhatLiesBeside(t *testing.T) {
	r := random(t)
	x, y := draws(r, longest, 1), draws(r, longest, 1)
	each(t, func(t *testing.T, s vector.Set) {
		for _, f := range reductions {
			for n := 0; n <= longest; n++ {
				want := f.run(s, x[:n], y[:n])
				for begin := range 9 {
					a, _ := spoiled(x[:n], begin)
					b, _ := spoiled(y[:n], begin*5)
					require.Equal(t, want, f.run(s, a, b), "%s of %d", f.name, n)
				}
			}
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	x := make([][]float32, 4)
	for i := range x {
		x[i] = make([]float32, 100)
	}
	m := vector.Matrix{Data: x[0], Row: 10, Col: 1}
	each(t, func(t *testing.T, s vector.Set) {
		for _, f := range elementwise {
			require.Zero(t, testing.AllocsPerRun(3, func() { f.run(s, x[:f.slices]) }), f.name)
		}
		for _, f := range reductions {
			require.Zero(t, testing.AllocsPerRun(3, func() { f.run(s, x[0], x[1]) }), f.name)
		}
		require.Zero(t, testing.AllocsPerRun(3, func() { s.MulAdd(x[1], 10, m, m, 10, 10, 10, vector.Full, false) }))
	})
}

func ExampleSet() {
	x := []float32{1, 2, 3}
	vector.Portable.Add(x, []float32{10, 20, 30})
	fmt.Println(x, vector.Portable.Total(x))
	// Output: [11 22 33] 66
}
