package kerneltest

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
)

func optimizerCases() []Case {
	return []Case{newCase("sumsquares", false, sumSquares), newCase("adamw", false, adamW)}
}

func sumSquares(l *lab) {
	for _, n := range lengths {
		in := l.normal(n, 1e3)
		x := l.put("x", in)
		square := func() (s float64) {
			l.do("SumSquares", func() (err error) { s, err = l.d.SumSquares(x); return err })
			return s
		}
		var want float64
		for _, v := range in {
			want += float64(v) * float64(v)
		}
		if got := square(); !(math.Abs(got-want) <= 0x1p-42*want) {
			l.fault("SumSquares of %d is %v, want %v within %.3g", n, got, want, 0x1p-42*want)
		}
		if first := square(); first != square() {
			l.fault("SumSquares of %d differs between two calls", n)
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			in[n/2] = float32(bad)
			l.must("WriteFloat32", l.d.WriteFloat32(x, in))
			l.unchanged("", x)
			if got := square(); !math.IsNaN(got) && !math.IsInf(got, 0) {
				l.fault("SumSquares of %d with a %v is %v", n, bad, got)
			}
		}
		l.drop()
	}
}

func adamW(l *lab) {
	for _, n := range lengths {
		for form := range 2 {
			op := kernels.AdamW{
				Factor: 0.125, LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1,
			}
			if form == 1 {
				op.Factor, op.Beta1, op.Beta2, op.Epsilon, op.WeightDecay = 1, 0, 0.5, 1e-3, 0
			}
			weight := l.normal(n, 1)
			w, m, v := wide(weight), make([]float64, n), make([]float64, n)
			op.Weight, op.M, op.V = l.put("Weight", weight), l.put("M", make([]float32, n)), l.put("V", make([]float32, n))
			for step := 1; step <= 3; step++ {
				title := fmt.Sprintf("AdamW of %d, form %d, step %d", n, form, step)
				op.Step = int64(step)
				grad := l.normal(n, 4)
				op.Grad = l.put("Grad", grad)
				l.do(title, func() error { return l.d.AdamW(op) }, op.Weight, op.M, op.V)
				b1, b2, lr := float64(op.Beta1), float64(op.Beta2), float64(op.LearningRate)
				for i := range w {
					g := float64(op.Factor) * float64(grad[i])
					m[i] = b1*m[i] + (1-b1)*g
					v[i] = b2*v[i] + (1-b2)*g*g
					mean := m[i] / (1 - math.Pow(b1, float64(step)))
					square := v[i] / (1 - math.Pow(b2, float64(step)))
					w[i] -= lr * (mean/(math.Sqrt(square)+float64(op.Epsilon)) + float64(op.WeightDecay)*w[i])
				}
				l.near(title+": Weight", l.read(op.Weight), w, 0x1p-18)
				l.near(title+": M", l.read(op.M), m, 0x1p-18)
				l.near(title+": V", l.read(op.V), v, 0x1p-18)
			}
			for _, spoil := range []func(op *kernels.AdamW){
				func(op *kernels.AdamW) { op.Step = 0 },
				func(op *kernels.AdamW) { op.Beta1 = 1 },
				func(op *kernels.AdamW) { op.Beta2 = 1 },
				func(op *kernels.AdamW) { op.Beta1 = -0x1p-149 },
				func(op *kernels.AdamW) { op.Beta2 = -0x1p-149 },
				func(op *kernels.AdamW) { op.Beta2 = float32(math.NaN()) },
			} {
				bad := op
				spoil(&bad)
				l.refuse("AdamW with a number out of range", kernels.ErrValue, func() error { return l.d.AdamW(bad) })
			}
			l.drop()
		}
	}
}
