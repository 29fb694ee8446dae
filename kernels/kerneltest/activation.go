package kerneltest

import (
	"fmt"
	"math"
)

func activationCases() []Case {
	return []Case{newCase("gelu", false, geluForward), newCase("gelu/backward", false, geluBackward)}
}

// geluInput draws numbers mostly from the range in which the function bends, and a few far
// outside it.
func geluInput(l *lab, n int) []float32 {
	x := l.normal(n, 2)
	for i, far := range []float32{0, 1e-20, -1e-20, 12, -12, 100, -100, 1e20, -1e20} {
		if i < n-1 {
			x[i] = far
		}
	}
	return x
}

func geluForward(l *lab) {
	for _, n := range lengths {
		title := fmt.Sprintf("GELU of %d", n)
		in := geluInput(l, n)
		want, bound := make([]float64, n), make([]float64, n)
		for i, v := range in {
			want[i], bound[i] = gelu(float64(v)), 0x1p-20*math.Abs(float64(v))
		}
		x, y := l.put("x", in), l.result("y", n)
		l.do(title, func() error { return l.d.GELU(y, x) }, y)
		l.inBounds(title, l.read(y), want, bound)
		l.do(title, func() error { return l.d.GELU(x, x) }, x)
		l.exactly(title+" in place", l.read(x), l.read(y))
		l.drop()
	}
}

func geluBackward(l *lab) {
	for _, n := range lengths {
		title := fmt.Sprintf("GELUBackward of %d", n)
		in, grad := geluInput(l, n), l.normal(n, 1)
		want, bound := make([]float64, n), make([]float64, n)
		for i, v := range in {
			x, g := float64(v), float64(grad[i])
			h := 1e-5 * max(1, math.Abs(x))
			want[i] = g * (gelu(x+h) - gelu(x-h)) / (2 * h)
			bound[i] = gradientBound * math.Abs(g)
		}
		x, dy, dx := l.put("x", in), l.put("dy", grad), l.result("dx", n)
		l.do(title, func() error { return l.d.GELUBackward(dx, dy, x) }, dx)
		l.inBounds(title, l.read(dx), want, bound)
		l.do(title, func() error { return l.d.GELUBackward(dy, dy, x) }, dy)
		l.exactly(title+" in place", l.read(dy), l.read(dx))
		l.drop()
	}
}
