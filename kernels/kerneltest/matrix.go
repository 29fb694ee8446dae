package kerneltest

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
)

func matrixCases() []Case {
	return []Case{
		newCase("matmul", false, matrixProduct),
		newCase("matmul/bias", false, biasedProduct),
		newCase("rows", false, rowsOfMatrix),
	}
}

// unit is half the distance from 1 to the next float32.
const unit = 0x1p-24

func matrixProduct(l *lab) {
	for _, s := range [][3]int{
		{1, 1, 1}, {1, 7, 3}, {3, 5, 2}, {5, 1, 9}, {17, 33, 9}, {64, 64, 64},
		{65, 129, 33}, {40, 3, 300}, {2, 260, 129}, {129, 65, 1},
	} {
		for form := range 8 {
			op := kernels.MatMul{M: s[0], N: s[1], K: s[2], TransA: form&1 != 0, TransB: form&2 != 0, Accumulate: form&4 != 0}
			title := fmt.Sprintf("MatMul %d×%d×%d, TransA %t, TransB %t, Accumulate %t", op.M, op.N, op.K, op.TransA, op.TransB, op.Accumulate)
			a, b := l.normal(op.M*op.K, 1), l.normal(op.K*op.N, 1)
			c, before := l.sum("C", op.M*op.N, op.Accumulate)
			want, bound := matmul(wide(a), wide(b), op.M, op.N, op.K, op.TransA, op.TransB)
			for i := range want {
				if op.Accumulate {
					want[i] += float64(before[i])
					bound[i] += math.Abs(float64(before[i]))
				}
				bound[i] *= float64(op.K+3) * unit
			}
			op.A, op.B, op.C = l.put("A", a), l.put("B", b), c
			l.do(title, func() error { return l.d.MatMul(op) }, op.C)
			l.inBounds(title, l.read(op.C), want, bound)
			l.drop()
		}
	}
}

// biasedProduct checks that adding a bias as part of the product and after it gives the same bits.
func biasedProduct(l *lab) {
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 2}, {17, 33, 9}, {64, 300, 130}, {600, 20, 70}} {
		for form := range 4 {
			op := kernels.MatMul{M: s[0], N: s[1], K: s[2], TransB: form&1 != 0, Accumulate: form&2 != 0}
			title := fmt.Sprintf("MatMul %d×%d×%d with Bias, TransB %t, Accumulate %t", op.M, op.N, op.K, op.TransB, op.Accumulate)
			op.A, op.B = l.put("A", l.normal(op.M*op.K, 1)), l.put("B", l.normal(op.K*op.N, 1))
			start, bias := l.normal(op.M*op.N, 1), l.put("Bias", l.normal(op.N, 1))

			op.C = l.put("C", start)
			l.do("MatMul", func() error { return l.d.MatMul(op) }, op.C)
			l.do("AddRow", func() error { return l.d.AddRow(op.C, bias, op.M, op.N) }, op.C)
			want := l.read(op.C)

			op.C, op.Bias = l.put("C", start), bias
			l.do(title, func() error { return l.d.MatMul(op) }, op.C)
			l.exactly(title, l.read(op.C), want)
			l.drop()
		}
	}
}

func rowsOfMatrix(l *lab) {
	for _, s := range [][2]int{{1, 1}, {1, 5}, {7, 3}, {33, 64}, {130, 17}, {300, 130}} {
		rows, cols := s[0], s[1]
		x, b := l.normal(rows*cols, 1), l.normal(cols, 1)
		for _, accumulate := range []bool{false, true} {
			title := fmt.Sprintf("SumRows %d×%d, accumulate %t", rows, cols, accumulate)
			want, bound := make([]float64, cols), make([]float64, cols)
			dst, before := l.sum("dst", cols, accumulate)
			copy(want, wide(before))
			for j := range want {
				bound[j] = math.Abs(want[j])
			}
			for i, v := range x {
				want[i%cols] += float64(v)
				bound[i%cols] += math.Abs(float64(v))
			}
			for j := range bound {
				bound[j] *= float64(rows+1) * unit
			}
			src := l.put("x", x)
			l.do(title, func() error { return l.d.SumRows(dst, src, rows, cols, accumulate) }, dst)
			l.inBounds(title, l.read(dst), want, bound)
		}
		sum := make([]float32, rows*cols)
		for i, v := range x {
			sum[i] = v + b[i%cols]
		}
		title := fmt.Sprintf("AddRow %d×%d", rows, cols)
		dst, row := l.put("x", x), l.put("b", b)
		l.do(title, func() error { return l.d.AddRow(dst, row, rows, cols) }, dst)
		l.exactly(title, l.read(dst), sum)
		l.drop()
	}
}
