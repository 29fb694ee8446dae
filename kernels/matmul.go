package kernels

import "github.com/weir-ml/weir/internal/arithmetic/gemm"

// multiplication is a matrix product on a device's threads: C is divided by rows or by columns,
// and each part is a separate product. Package gemm guarantees that this does not change a
// single bit.
type multiplication struct {
	crew *crew

	m, n, k    int
	a, b       gemm.Matrix
	c          []float32
	ldc        int
	accumulate bool
	parts      int
	byRows     bool

	bias []float32 // N elements, added by the next call of multiply; may be nil
}

// multiply computes c = a·b or c += a·b. a is m×k, b is k×n, and c is m×n with ldc
// elements between rows.
func (x *multiplication) multiply(m, n, k int, a, b gemm.Matrix, c []float32, ldc int, accumulate bool) {
	x.m, x.n, x.k, x.a, x.b = m, n, k, a, b
	x.c, x.ldc, x.accumulate = c, ldc, accumulate
	x.cut()
	x.crew.run(x, x.parts)
	x.a, x.b, x.c, x.bias = gemm.Matrix{}, gemm.Matrix{}, nil, nil
}

// cut chooses the parts. Each part reads all of the operand that is not divided. A part with few
// columns is the most expensive, because it reads only a little of each row of B and the rows are
// far apart. Therefore C is divided by rows if it has more rows than columns, or if parts by
// columns would be narrow, there are enough rows for every thread, and B is not read in place.
// There are as many parts as threads, or a few times as many for a large product, so that the
// other threads wait less for a delayed one.
func (x *multiplication) cut() {
	const (
		worth  = 1 << 19 // a part with fewer products costs more than it saves
		narrow = 32      // minimum rows or columns of a part that is cut to give each thread one
		wide   = 384     // if a part would have fewer columns, C is divided by rows instead
		spare  = 512     // minimum rows or columns of a part that is cut to balance the threads
		few    = 96      // with at most this many rows, B is read as a stream or in place
	)
	threads := x.crew.threads()
	if x.parts = 1; threads == 1 {
		return
	}
	inPlace := x.b.Trans && x.m <= few
	side := x.n
	if x.byRows = x.m > x.n || !inPlace && x.n/threads < wide && x.m/threads >= narrow; x.byRows {
		side = x.m
	}
	parts := min(threads, side/narrow)
	if x.m > few || inPlace {
		parts = max(parts, min(4, side/spare/threads)*threads)
	}
	x.parts = max(1, min(parts, size(size(x.m, x.n), x.k)/worth))
}

// part computes part i.
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
	if x.bias != nil { // now, while the part is still in a cache
		for i := range m {
			w.vector.Add(c[i*x.ldc:][:n], x.bias[col:])
		}
	}
}
