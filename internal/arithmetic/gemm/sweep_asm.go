//go:build (amd64 || arm64) && !purego

package gemm

import (
	"unsafe"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// sweep adds the product of a tile and a block to rows×width elements of c, or overwrites them
// if add is not set. after is c of the next call.
func (p *Multiplier) sweep(rows, depth, width int, a tile, b block, c, after []float32, stride int, add bool) {
	if p.Set == vector.Portable {
		sweepPlain(rows, depth, width, a, b, c, stride, add)
		return
	}
	s := &p.args
	*s = sweepArgs{
		a: &a.data[0], aRow: 4 * a.row, aDepth: 4 * a.depth,
		b: &b.data[0], bDepth: 4 * b.depth, bPanel: 4 * b.panel,
		c: &c[0], cRow: 4 * stride, depth: depth, cols: width, after: address(&after[0]),
	}
	switch {
	case b.ahead != nil:
		s.ahead, s.aheadStep, s.aheadPanel = address(&b.ahead[0]), 4*b.aheadStep, 4*b.aheadPanel
	case !b.near:
		s.ahead, s.aheadStep, s.aheadPanel = address(s.b)+uintptr(s.bPanel), s.bDepth, s.bPanel
	}
	if add {
		s.add = 1
	}
	switch {
	case p.Set == vector.AVX2:
		sweep256(s, rows)
	case rows >= 8 && a.row == 1:
		tight512(s, rows)
	default:
		sweep512(s, rows)
	}
	*s = sweepArgs{} // pointers must not outlive the call
}

// transpose writes the transpose of rows×cols elements of src to dst.
func (p *Multiplier) transpose(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	fast := 0
	if blocks := cols / 8; rows == 8 && blocks > 0 && p.Set != vector.Portable {
		transpose8(&dst[0], 4*dstStride, &src[0], 4*srcStride, blocks)
		fast = 8 * blocks
	}
	if fast < cols {
		transposePlain(dst[fast*dstStride:], dstStride, src[fast:], srcStride, rows, cols-fast)
	}
}

// copyRows copies rows×cols elements, with cols at most 16. A remainder that does not fill a
// vector is copied as a second vector, which overlaps the first.
func (p *Multiplier) copyRows(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	switch {
	case p.Set == vector.Portable || cols < 4:
		copyPlain(dst, dstStride, src, srcStride, rows, cols)
	case cols < 8:
		copy4(&dst[0], 4*dstStride, &src[0], 4*srcStride, rows)
		copy4(&dst[cols-4], 4*dstStride, &src[cols-4], 4*srcStride, rows)
	default:
		copy8(&dst[0], 4*dstStride, &src[0], 4*srcStride, rows)
		copy8(&dst[cols-8], 4*dstStride, &src[cols-8], 4*srcStride, rows)
	}
}

// spread copies a row into panels of panel columns that are dstPanel elements apart.
func (p *Multiplier) spread(dst []float32, dstPanel int, src []float32, srcStride, panel int) {
	const ahead = 4 // rows; the processor would not prefetch them on its own
	whole := 0
	switch panels := len(src) / panel; {
	case panels == 0 || p.Set == vector.Portable:
	case p.Set == vector.AVX512:
		spread32(&dst[0], 4*dstPanel, &src[0], panels, 4*ahead*srcStride)
		whole = panels
	case p.Set == vector.AVX2:
		spread16(&dst[0], 4*dstPanel, &src[0], panels, 4*ahead*srcStride)
		whole = panels
	}
	if whole*panel < len(src) {
		spreadPlain(dst[whole*dstPanel:], dstPanel, src[whole*panel:], panel)
	}
}

//go:noescape
func sweep512(s *sweepArgs, rows int)

// tight512 is sweep512 for at least 8 rows and an aRow of 4.
//
//go:noescape
func tight512(s *sweepArgs, rows int)

//go:noescape
func sweep256(s *sweepArgs, rows int)

//go:noescape
func transpose8(dst *float32, dstRow int, src *float32, srcRow, blocks int)

//go:noescape
func copy8(dst *float32, dstRow int, src *float32, srcRow, rows int)

//go:noescape
func copy4(dst *float32, dstRow int, src *float32, srcRow, rows int)

//go:noescape
func spread16(dst *float32, dstPanel int, src *float32, panels, ahead int)

//go:noescape
func spread32(dst *float32, dstPanel int, src *float32, panels, ahead int)

// address returns the address of x, which need not point to allocated memory.
func address(x *float32) uintptr { return uintptr(unsafe.Pointer(x)) }
