package gemm

import (
	"unsafe"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Matrix is an operand, stored row-major with Stride elements between rows. If Trans is set,
// the operand is the transpose of the stored matrix.
type Matrix struct {
	Data   []float32
	Stride int
	Trans  bool
}

// From returns the part of the matrix that begins at the given row and column.
func (x Matrix) From(row, col int) Matrix {
	if x.Trans {
		row, col = col, row
	}
	x.Data = x.Data[row*x.Stride+col:]
	return x
}

// steps returns the distances between rows and between columns, in elements.
func (x Matrix) steps() (row, col int) {
	if x.Trans {
		return 1, x.Stride
	}
	return x.Stride, 1
}

// end returns the number of stored elements from the first to the last element of a rows×cols
// operand.
func (x Matrix) end(rows, cols int) int {
	row, col := x.steps()
	return (rows-1)*row + (cols-1)*col + 1
}

// The block of B is 3/4 MiB, which leaves space for other data in a second-level cache of 1 MiB.
const (
	maxDepth = 384
	maxWidth = 512
	maxRows  = 14 // rows of the tallest tile
)

// shapes gives the rows of a tile and the columns of a panel for each instruction set.
var shapes = [...]struct{ rows, panel int }{
	vector.Portable: {4, 4},
	vector.AVX2:     {6, 16},
	vector.AVX512:   {14, 32},
}

// Multiplier multiplies on one thread. It owns the scratch memory for the blocks, which takes 0.8
// MiB regardless of the shapes. It is not safe for concurrent use.
type Multiplier struct {
	// Set is the instruction set, which may change between calls. The processor must support it.
	Set vector.Set

	a    []float32 // a packed tile of A: its rows for each k
	b    []float32 // a packed block of B: its panels, each row by row
	c    []float32 // a tile of the transpose of C
	args sweepArgs
}

// New returns a Multiplier that uses the given instruction set.
func New(set vector.Set) *Multiplier {
	return &Multiplier{Set: set, a: aligned(maxDepth * maxRows), b: aligned(maxDepth * maxWidth), c: aligned(maxRows * transposedRows)}
}

// aligned returns n elements, the first of which is aligned to a cache line.
func aligned(n int) []float32 {
	const line = 64
	x := make([]float32, n+line/4)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(x))) % line / 4
	return x[skip:][:n:n]
}

// Multiply computes c = a·b or c += a·b. a is m×k, b is k×n, and c is m×n with stride
// elements between rows. m, n and k are at least 1. C shares no memory with A and B. Multiply
// panics if an operand is too short.
func (p *Multiplier) Multiply(m, n, k int, a, b Matrix, c []float32, stride int, accumulate bool) {
	_, _, _ = a.Data[a.end(m, k)-1], b.Data[b.end(k, n)-1], c[(m-1)*stride+n-1]
	shape := shapes[p.Set]
	if p.shouldTranspose(m, k, b) {
		p.multiplyTransposed(m, n, k, a, b, c, stride, accumulate)
		return
	}
	pack, stays := p.shouldPack(m, n, k, b), p.staysCached(n, k, b)
	if !pack && p.shouldStream(m, n, k, b) {
		p.multiplyStreamed(m, n, k, a, b, c, stride, accumulate)
		return
	}
	for j0 := 0; j0 < n; {
		width := share(n-j0, maxWidth, shape.panel)
		for k0 := 0; k0 < k; {
			depth := share(k-k0, maxDepth, 8)
			block := p.block(b.From(k0, j0), depth, width, pack)
			for i0 := 0; i0 < m; {
				rows := share(m-i0, shape.rows, 1)
				tile := p.tile(a.From(i0, k0), rows, depth, width)
				block.near = pack || stays && i0 > 0
				at := i0*stride + j0
				after := at // the last tile is followed by itself
				if i0 += rows; i0 < m {
					after = i0*stride + j0
				}
				p.sweep(rows, depth, width, tile, block, c[at:], c[after:], stride, accumulate || k0 > 0)
			}
			k0 += depth
		}
		j0 += width
	}
}

// share divides n into nearly equal shares and returns the first. Each share is at most limit,
// and all but the last are multiples of step, which divides limit.
func share(n, limit, step int) int {
	if n <= limit {
		return n // avoids the division
	}
	shares := (n + limit - 1) / limit
	each := (n + shares - 1) / shares
	return min(n, (each+step-1)/step*step)
}
