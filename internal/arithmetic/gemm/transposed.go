package gemm

import "github.com/weir-ml/weir/internal/arithmetic/vector"

// transposedRows is the maximum number of rows of C for which the product may be computed as its
// transpose.
const transposedRows = 96

// shouldTranspose reports whether to compute the product as its transpose, bᵀ·aᵀ. That is the
// case if B is stored transposed and A has so few rows that packing B would take longer than
// using it. The other thresholds are measured. Only AVX-512 transposes.
func (p *Multiplier) shouldTranspose(m, k int, b Matrix) bool {
	const few, shallow = 32, 128
	return b.Trans && few <= m && m <= transposedRows && k >= shallow && p.Set == vector.AVX512
}

// multiplyTransposed implements Multiply by computing the transpose, which consists of the same sums. All rows
// of A are packed together, and B is read in place, in tiles of its columns. The columns of C that correspond
// to a tile are computed as rows in scratch memory.
func (p *Multiplier) multiplyTransposed(m, n, k int, a, b Matrix, c []float32, stride int, accumulate bool) {
	a.Trans, b.Trans = !a.Trans, !b.Trans
	shape := shapes[p.Set]
	most := len(p.b) / ((m + shape.panel - 1) / shape.panel * shape.panel)
	for k0 := 0; k0 < k; {
		depth := share(k-k0, most, 8)
		block := p.block(a.From(k0, 0), depth, m, true)
		steps := (m + shape.panel/2 - 1) / shape.panel * depth // in panels that prefetch, which are more than half full
		block.aheadStep = (shape.rows*b.Stride + steps - 1) / steps
		block.aheadPanel = block.aheadStep * depth
		add := accumulate || k0 > 0
		for j0 := 0; j0 < n; {
			rows := share(n-j0, shape.rows, 1)
			if add {
				p.transposeAny(p.c, m, c[j0:], stride, m, rows)
			}
			block.ahead = nil
			if j0+rows < n {
				block.ahead = b.From(j0+rows, k0).Data
			}
			p.sweep(rows, depth, m, direct(b.From(j0, k0)), block, p.c, p.c, m, add)
			p.transposeAny(c[j0:], stride, p.c, m, rows, m)
			j0 += rows
		}
		k0 += depth
	}
}

// transposeAny writes the transpose of rows×cols elements of src to dst.
func (p *Multiplier) transposeAny(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	if rows < 8 {
		p.transpose(dst, dstStride, src, srcStride, rows, cols)
		return
	}
	for i := 0; i < rows; i += 8 {
		i = min(i, rows-8) // the last rows overlap the preceding ones if 8 does not divide the number of rows
		p.transpose(dst[i:], dstStride, src[i*srcStride:], srcStride, 8, cols)
	}
}
