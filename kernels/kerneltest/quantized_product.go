package kerneltest

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

// quantizedProduct compares with the definition, bit for bit, and with float64.
func quantizedProduct(l *lab) {
	all := encodings()
	for i, s := range [][3]int{{1, 1, 1}, {3, 5, 31}, {15, 33, 200}, {2, 40, 513}, {30, 17, 260}} {
		for j, a := range all {
			for k, b := range all {
				if i > 1 && (i+j+k)%8 != 0 && (a != b || i > 4) {
					continue
				}
				op := kernels.QuantizedMatMul{M: s[0], N: s[1], K: s[2], Accumulate: (i+j+k)%2 == 0}
				l.product(op, a, b, (j+k)%3 == 0, (i+j)%5 == 0)
			}
		}
	}
}

// quantized returns a matrix of random numbers.
func (l *lab) quantized(e kernels.Encoding, rows, cols int) kernels.Quantized {
	q := kernels.Quantize{X: l.put("X", l.normal(rows*cols, 1)), Rows: rows, Cols: cols, Rowwise: l.none(e, rows, cols)}
	l.do("Quantize", func() error { return l.d.Quantize(q) }, q.Rowwise.Data)
	return q.Rowwise
}

func (l *lab) product(op kernels.QuantizedMatMul, a, b kernels.Encoding, biased, wild bool) {
	title := fmt.Sprintf("QuantizedMatMul %d×%d×%d of %s and %s, Accumulate %t", op.M, op.N, op.K, a, b, op.Accumulate)
	quantized := func(e kernels.Encoding, rows int) kernels.Quantized {
		if !wild {
			return l.quantized(e, rows, op.K)
		}
		x := l.ranging(rows, op.K, true)
		q := kernels.Quantize{X: l.put("X", x), Rows: rows, Cols: op.K, Rowwise: l.none(e, rows, op.K)}
		l.do("Quantize", func() error { return l.d.Quantize(q) }, q.Rowwise.Data)
		return q.Rowwise
	}
	start := l.normal(op.M*op.N, 1)
	op.A, op.B = quantized(a, op.M), quantized(b, op.N)
	op.Workspace = l.result("Workspace", l.d.QuantizedWorkspace(op.M, op.N, op.K))
	if op.C = l.result("C", len(start)); op.Accumulate {
		op.C = l.put("C", start)
	}
	x, y := l.bytesOf(op.A), l.bytesOf(op.B)
	want := x.product(y, start, op.Accumulate)
	if biased {
		bias := l.normal(op.N, 1)
		op.Bias = l.put("Bias", bias)
		for i := range want {
			want[i] += bias[i%op.N]
		}
	}
	l.do(title, func() error { return l.d.QuantizedMatMul(op) }, op.C, op.Workspace)
	l.exactlyOrNaN(title, l.read(op.C), want)
	l.drop()
}
