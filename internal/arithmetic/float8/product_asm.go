//go:build (amd64 || arm64) && !purego

package float8

import "unsafe"

// tileArgs holds the arguments of one call to the assembly; see product_avx512_amd64.s. The
// strides of C and D are in bytes.
type tileArgs struct {
	a, aFactors *float32
	b, bFactors *float32
	c           *float32
	cRow        int
	d           *float32
	dRow        int
	depth, span int
}

// zeros is the initial value of the sums if C is overwritten.
var zeros [32]float32

// tile adds the products of the rows of A and a panel of B to rows×cols elements of C, or
// overwrites these elements if first is set.
func (p *blocks) tile(c []float32, stride, rows, cols, at int, first bool) {
	if p.set == Portable {
		p.plainTile(c, stride, rows, cols, at, first)
		return
	}
	if cols < p.cols {
		p.edgeTile(c, stride, rows, cols, at, first)
		return
	}
	p.wholeTile(c, stride, rows, at, first)
}

// edgeTile is tile for a panel with unused columns. It computes into a separate C.
func (p *blocks) edgeTile(c []float32, stride, rows, cols, at int, first bool) {
	var edge [maxRows * maxCols]float32
	for i := range rows {
		if !first {
			copy(edge[i*p.cols:], c[i*stride:][:cols])
		}
	}
	p.wholeTile(edge[:], p.cols, rows, at, first)
	for i := range rows {
		copy(c[i*stride:][:cols], edge[i*p.cols:])
	}
}

// wholeTile is tile for a whole panel.
func (p *blocks) wholeTile(c []float32, stride, rows, at int, first bool) {
	s := tileArgs{
		a: &p.a[0], aFactors: &p.aFactors[0], b: &p.b[at*p.deep], bFactors: &p.bFactors[at*maxSpans],
		c: &c[0], cRow: 4 * stride, d: &c[0], dRow: 4 * stride, depth: p.depth, span: p.span,
	}
	if first {
		s.d, s.dRow = &zeros[0], 0
	}
	if p.set == AVX512 {
		tile512(&s, rows)
	} else {
		tile256(&s, rows)
	}
}

// packPanel decodes rows of codes, stride bytes apart, into a panel: blocks of 16 codes from as
// many rows as a panel has columns.
func (s Set) packPanel(dst *float32, codes *byte, stride, blocks int, f *Format) {
	if s == AVX512 {
		pack512(dst, codes, stride, blocks, f.Mantissa == 3)
		return
	}
	pack256(dst, codes, stride, blocks, f.Mantissa == 3)
	dst, codes = (*float32)(unsafe.Add(unsafe.Pointer(dst), 32)), (*byte)(unsafe.Add(unsafe.Pointer(codes), 8*stride))
	pack256(dst, codes, stride, blocks, f.Mantissa == 3)
}

// packScaled is packPanel for codes of E5M2 with a factor for each block of 16 elements of a
// row.
func (s Set) packScaled(dst *float32, codes *byte, stride, blocks int, factors *float32) {
	if s == AVX512 {
		packScaled512(dst, codes, stride, blocks, factors)
		return
	}
	packScaled256(dst, codes, stride, blocks, factors)
	dst, factors = (*float32)(unsafe.Add(unsafe.Pointer(dst), 32)), (*float32)(unsafe.Add(unsafe.Pointer(factors), 32))
	packScaled256(dst, (*byte)(unsafe.Add(unsafe.Pointer(codes), 8*stride)), stride, blocks, factors)
}

// widen converts codes of E2M1 to E5M2. dst has room for twice the bytes of src, rounded up to
// a multiple of 32.
func widen(dst, src []byte) {
	const group = 32
	whole := len(src) &^ (group/2 - 1)
	if whole > 0 {
		widen256(&dst[0], &src[0], 2*whole)
	}
	if whole < len(src) {
		var edge [group / 2]byte
		copy(edge[:], src[whole:])
		widen256(&dst[2*whole], &edge[0], group)
	}
}

//go:noescape
func tile512(s *tileArgs, rows int)

//go:noescape
func tile256(s *tileArgs, rows int)

// pack512 decodes 32 rows. pack256 decodes eight rows, which become eight columns of a 16-column
// panel.

//go:noescape
func pack512(dst *float32, codes *byte, stride, blocks int, e4m3 bool)

//go:noescape
func pack256(dst *float32, codes *byte, stride, blocks int, e4m3 bool)

//go:noescape
func packScaled512(dst *float32, codes *byte, stride, blocks int, factors *float32)

//go:noescape
func packScaled256(dst *float32, codes *byte, stride, blocks int, factors *float32)

//go:noescape
func widen256(dst, src *byte, n int)
