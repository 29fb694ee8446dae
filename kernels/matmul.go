package kernels

import "gonum.org/v1/gonum/blas/gonum"

// This file is the only one that knows the library of matrix products.
//
// It uses gonum's Sger, C += x·yᵀ, once for every k over a block of C that stays
// in the first-level cache. Sgemm adds to one row of C at a time, which is less
// than half as fast on amd64; from 4 blocks of 64×64 on it starts goroutines and
// allocates; and it skips what a zero multiplies, be it NaN. Sger does none of
// that.
//
// Every element of C is summed alone and in ascending order of k, so the blocks
// change no bit of the result.

// The blocks. Rows and columns bound the tile of C (32 KiB); depth bounds what
// is packed of A and B (32 and 64 KiB), so that it stays in the second-level
// cache.
const (
	blockRows  = 64
	blockCols  = 128
	blockDepth = 128
)

// matrix is an operand: row-major with ld elements from row to row. Where trans
// is set the operand is the transpose of what is stored.
type matrix struct {
	data  []float32
	ld    int
	trans bool
}

// product holds the scratch memory of multiply, 128 KiB whatever the shapes.
type product struct {
	a []float32 // packed block of A, by columns: depth × rows
	b []float32 // packed block of B, by rows: depth × columns
	c []float32 // tile of C: rows × columns
}

func newProduct() product {
	return product{
		a: make([]float32, blockDepth*blockRows),
		b: make([]float32, blockDepth*blockCols),
		c: make([]float32, blockRows*blockCols),
	}
}

// multiply computes c = a·b or c += a·b, a being m×k, b k×n and c m×n with ldc
// elements from row to row.
func (p *product) multiply(m, n, k int, a, b matrix, c []float32, ldc int, accumulate bool) {
	for k0 := 0; k0 < k; k0 += blockDepth {
		depth := min(blockDepth, k-k0)
		for i0 := 0; i0 < m; i0 += blockRows {
			rows := min(blockRows, m-i0)
			// Rank-one updates read A by columns: as it lies where it is stored
			// transposed, else packed.
			x, ldx := p.a, blockRows
			if a.trans {
				x, ldx = a.data[k0*a.ld+i0:], a.ld
			} else {
				transpose(x, ldx, a.data[i0*a.ld+k0:], a.ld, rows, depth)
			}
			for j0 := 0; j0 < n; j0 += blockCols {
				cols := min(blockCols, n-j0)
				y, ldy := p.b, blockCols
				if b.trans {
					transpose(y, ldy, b.data[j0*b.ld+k0:], b.ld, cols, depth)
				} else {
					y, ldy = b.data[k0*b.ld+j0:], b.ld
				}
				part := c[i0*ldc+j0:]
				if accumulate || k0 > 0 {
					copyRows(p.c, blockCols, part, ldc, rows, cols)
				} else {
					clear(p.c[:rows*blockCols])
				}
				for l := range depth {
					rankOne(rows, cols, x[l*ldx:], 1, y[l*ldy:], p.c, blockCols)
				}
				copyRows(part, ldc, p.c, blockCols, rows, cols)
			}
		}
	}
}

// rankOne computes c += x·yᵀ for the first m elements of x, which are incX apart,
// the first n of y, and c m×n with ldc elements from row to row.
func rankOne(m, n int, x []float32, incX int, y, c []float32, ldc int) {
	gonum.Implementation{}.Sger(m, n, 1, x, incX, y, 1, c, ldc)
}

// transpose writes the transpose of src (rows×cols) to dst (cols×rows). Four
// rows at a time, so that what is written lies together.
func transpose(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	i := 0
	for ; i+4 <= rows; i += 4 {
		r0 := src[i*lds:][:cols]
		r1 := src[(i+1)*lds:][:cols]
		r2 := src[(i+2)*lds:][:cols]
		r3 := src[(i+3)*lds:][:cols]
		o := i
		for l, v := range r0 {
			d := dst[o : o+4 : o+4]
			d[0], d[1], d[2], d[3] = v, r1[l], r2[l], r3[l]
			o += ldd
		}
	}
	for ; i < rows; i++ {
		o := i
		for _, v := range src[i*lds:][:cols] {
			dst[o] = v
			o += ldd
		}
	}
}

// copyRows copies rows×cols elements from src to dst.
func copyRows(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	for i := range rows {
		copy(dst[i*ldd:][:cols], src[i*lds:][:cols])
	}
}
