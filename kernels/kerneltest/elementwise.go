package kerneltest

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

// lengths are odd and even numbers of elements, around powers of two.
var lengths = []int{1, 3, 4, 16, 63, 1000}

func elementwiseCases() []Case {
	return []Case{newCase("elementwise", false, elementwise)}
}

func elementwise(l *lab) {
	for _, n := range lengths {
		x, y := l.normal(n, 1), l.normal(n, 1)
		sum := make([]float32, n)
		for i := range sum {
			sum[i] = x[i] + y[i]
		}
		a, b, r := l.put("a", x), l.put("b", y), l.result("r", n)
		title := func(op string) string { return fmt.Sprintf("%s of %d", op, n) }

		l.do(title("Zero"), func() error { return l.d.Zero(r) }, r)
		l.exactly(title("Zero"), l.read(r), make([]float32, n))
		l.do(title("Copy"), func() error { return l.d.Copy(r, a) }, r)
		l.exactly(title("Copy"), l.read(r), x)
		l.do(title("Add"), func() error { return l.d.Add(r, b) }, r)
		l.exactly(title("Add"), l.read(r), sum)
		for _, dst := range []kernels.Buffer{l.result("dst", n), a, b} {
			l.must("WriteFloat32", l.d.WriteFloat32(a, x))
			l.must("WriteFloat32", l.d.WriteFloat32(b, y))
			l.unchanged("", a, b)
			l.do(title("Sum"), func() error { return l.d.Sum(dst, a, b) }, dst)
			l.exactly(title("Sum"), l.read(dst), sum)
		}
		l.drop()
	}
}
