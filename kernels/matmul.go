package kernels

import (
	"github.com/weir-ml/weir/internal/product"
)

// matrix is an operand: row-major with ld elements from row to row. Where trans
// is set the operand is the transpose of what is stored.
type matrix struct {
	data  []float32
	ld    int
	trans bool
}

// view returns the same for package product.
func (x matrix) view() product.Matrix {
	return product.Matrix{Data: x.data, Stride: x.ld, Trans: x.trans}
}

// multiplication is a matrix product on the threads of a device: C is cut into
// rows or columns, each part a product of its own. Package product promises that
// this changes no bit.
type multiplication struct {
	crew *crew

	m, n, k    int
	a, b       product.Matrix
	c          []float32
	ldc        int
	accumulate bool
	parts      int
	byRows     bool

	bias []float32 // of N elements, for the next call of multiply; nil: nothing
}

// multiply computes c = a·b or c += a·b, a being m×k, b k×n and c m×n with ldc
// elements from row to row.
func (x *multiplication) multiply(m, n, k int, a, b matrix, c []float32, ldc int, accumulate bool) {
	x.m, x.n, x.k, x.a, x.b = m, n, k, a.view(), b.view()
	x.c, x.ldc, x.accumulate = c, ldc, accumulate
	x.cut()
	x.crew.run(x, x.parts)
	x.a, x.b, x.c, x.bias = product.Matrix{}, product.Matrix{}, nil, nil
}

// cut chooses the parts. Each part reads all of the operand that is not cut, and one of
// few columns costs most: its rows of B lie far apart for what it reads of them. So rows
// are cut unless there are more columns, and many, or B is stored transposed and read
// where it lies. There are as many parts as threads, and a few times as many of a large
// product, so that less is left to do for a thread that was held up.
func (x *multiplication) cut() {
	const (
		worth  = 1 << 19 // products below which a part costs more than it saves
		narrow = 32      // rows or columns below which a part is not cut for a thread of its own
		wide   = 384     // columns below which rows are cut instead
		spare  = 512     // rows or columns below which a part is not cut for the balance
		few    = 96      // rows up to which B is a stream, or read as it lies
	)
	threads := x.crew.threads()
	if x.parts = 1; threads == 1 {
		return
	}
	lies := x.b.Trans && x.m <= few
	side := x.n
	if x.byRows = x.m > x.n || !lies && x.n/threads < wide && x.m/threads >= narrow; x.byRows {
		side = x.m
	}
	parts := min(threads, side/narrow)
	if x.m > few || lies {
		parts = max(parts, min(4, side/spare/threads)*threads)
	}
	x.parts = max(1, min(parts, size(size(x.m, x.n), x.k)/worth))
}

// part computes one part.
func (x *multiplication) part(i, _ int, w *worker) {
	a, b, m, n := x.a, x.b, x.m, x.n
	row, col := 0, 0
	if x.byRows {
		row, m = x.m*i/x.parts, x.m*(i+1)/x.parts-x.m*i/x.parts
		a = a.From(row, 0)
	} else {
		col, n = x.n*i/x.parts, x.n*(i+1)/x.parts-x.n*i/x.parts
		b = b.From(0, col)
	}
	c := x.c[row*x.ldc+col:]
	w.product.Multiply(m, n, x.k, a, b, c, x.ldc, x.accumulate)
	if x.bias != nil { // the part is still in a cache
		for i := range m {
			w.vector.Add(c[i*x.ldc:][:n], x.bias[col:])
		}
	}
}
