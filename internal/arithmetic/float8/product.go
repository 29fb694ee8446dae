package float8

// The product of quantized matrices is defined such that every processor computes the same bits.
// K is divided into spans of 128 elements, or of 32 if an operand is in MX32. The products of a
// span are summed from 0, in ascending order, in float32. Their factors are the decoded codes,
// multiplied in NV16 by the block's scale. These factors have so few bits that each product is
// exact, and an addition rounds once whether or not it is fused with the product. A span's sum is
// multiplied by A's factor, then by B's, and is then added to the element of C: three roundings.
// The scales are thus applied at the same point at which tensor cores promote their sums
// (DeepSeek-V3), and no decoded value is ever rounded.

// Scratch returns the number of float32 elements that Multiply needs as scratch if C has n
// columns and K is k.
func Scratch(n, k int) int {
	deep, wide := blockSides(n, k)
	return maxRows*(maxDepth+maxSpans) + wide*(deep+maxSpans)
}

// blockSides returns the dimensions of a block of B, rounded up to whole packing units.
func blockSides(n, k int) (deep, wide int) {
	return blocksOf(min(k, maxDepth), packed) * packed, blocksOf(min(n, maxWidth), maxCols) * maxCols
}

// A decoded block of B stays in the second-level cache, and a tile of a few rows of A in the
// first-level cache.
const (
	maxDepth = 256 // elements along K; consists of whole spans
	maxWidth = 512 // columns of C
	maxRows  = 14  // rows of the tallest tile
	maxCols  = 32  // columns of the widest tile
	maxSpans = maxDepth / BlockMX
	packed   = 16 // elements along K per packing step in assembly
)

// tileShapes gives the numbers of rows and columns of C that each set computes at a time.
var tileShapes = [...]struct{ rows, cols int }{Portable: {4, 4}, AVX2: {6, 16}, AVX512: {14, maxCols}}

// span returns the number of products of A and B that are summed before their scales are
// applied.
func span(a, b *Matrix) int {
	if a.Scaling == MX32 || b.Scaling == MX32 {
		return BlockMX
	}
	return BlockRow
}

// Multiply adds the product of a and the transpose of b to c, for the rows×cols elements that
// begin at row and col. If first is set, it overwrites them instead. a and b have the same
// number of columns, K. If they are scaled in blocks, the blocks run along K. Rows of c are stride elements apart.
// scratch is at least as long as Scratch returns for cols or more columns.
func (s Set) Multiply(c []float32, stride int, a, b *Matrix, row, rows, col, cols int, first bool, scratch []float32) {
	p := newBlocks(s, scratch, cols, a.Cols, span(a, b))
	for j := 0; j < cols; j += maxWidth {
		width := min(maxWidth, cols-j)
		for k := 0; k < a.Cols; k += maxDepth {
			p.depth = min(maxDepth, a.Cols-k)
			p.packB(b, col+j, width, k)
			for i, height := 0, 0; i < rows; i += height {
				height = evenly(rows-i, p.rows)
				p.packA(a, row+i, height, k)
				for l := 0; l < width; l += p.cols {
					p.tile(c[i*stride+j+l:], stride, height, min(p.cols, width-l), l, first && k == 0)
				}
			}
		}
	}
}

// evenly divides n into shares that are at most limit and differ by at most one, and returns the
// first.
func evenly(n, limit int) int {
	shares := blocksOf(n, limit)
	return blocksOf(n, shares)
}

// blocks holds decoded pieces of A and B.
type blocks struct {
	set              Set
	rows, cols, span int
	depth, deep      int       // elements along K, used and allocated
	a                []float32 // rows of maxDepth elements
	aFactors         []float32 // rows of maxSpans factors
	b                []float32 // panels of cols columns and deep rows
	bFactors         []float32 // panels of cols columns and maxSpans rows
}

func newBlocks(s Set, scratch []float32, n, k, span int) blocks {
	deep, wide := blockSides(n, k)
	p := blocks{set: s, span: span, deep: deep, rows: tileShapes[s].rows, cols: tileShapes[s].cols}
	cut := func(n int) []float32 {
		x := scratch[:n:n]
		scratch = scratch[n:]
		return x
	}
	p.b, p.bFactors = cut(deep*wide), cut(maxSpans*wide)
	p.a, p.aFactors = cut(maxRows*maxDepth), cut(maxRows*maxSpans)
	return p
}

// packA decodes a piece of rows of A that begins at column k.
func (p *blocks) packA(m *Matrix, row, rows, k int) {
	for i := range rows {
		p.set.rawRow(p.a[i*maxDepth:][:p.depth], m, row+i, k)
		m.spanFactors(p.aFactors[i*maxSpans:], 1, row+i, k, p.depth, p.span)
	}
}

// packB decodes a piece of rows of B that begins at column k. The rows become columns of panels.
// Unused columns of the last panel are undefined.
func (p *blocks) packB(m *Matrix, row, rows, k int) {
	for j := 0; j < rows; j += p.cols {
		n := min(p.cols, rows-j)
		for l := range n {
			m.spanFactors(p.bFactors[j*maxSpans+l:], p.cols, row+j+l, k, p.depth, p.span)
		}
		panel := p.b[j*p.deep:]
		switch {
		case p.set == Portable:
			p.packRows(panel, m, row+j, n, k)
		case m.Scaling == NV16:
			p.packNV(panel, m, row+j, n, k)
		default:
			p.packCodes(panel, m, row+j, n, k)
		}
	}
}

// packRows packs a panel, a few rows at a time.
func (p *blocks) packRows(panel []float32, m *Matrix, row, rows, k int) {
	const few = 8
	var lines [few * maxDepth]float32
	for l := 0; l < rows; l += few {
		n := min(few, rows-l)
		for i := range n {
			p.set.rawRow(lines[i*maxDepth:][:p.depth], m, row+l+i, k)
		}
		p.set.transpose(panel[l:], p.cols, lines[:], maxDepth, n, p.depth)
	}
}

// packCodes packs a panel in assembly, which reads whole blocks of 16 codes from as many rows as
// a panel has columns. It packs a copy of an incomplete last block, or of all blocks if rows are
// missing.
func (p *blocks) packCodes(panel []float32, m *Matrix, row, rows, k int) {
	const block = packed
	whole := p.depth / block
	if rows < p.cols {
		whole = 0
	}
	if whole > 0 {
		p.set.packPanel(&panel[0], &m.from(row, k)[0], m.Stride, whole, m.Format)
	}
	for at := whole * block; at < p.depth; at += block {
		var edge [maxCols * block]byte
		for l := range rows {
			copy(edge[l*block:][:block], m.from(row+l, k+at)[:min(block, p.depth-at)])
		}
		p.set.packPanel(&panel[at*p.cols], &edge[0], block, 1, m.Format)
	}
}

// packNV packs a panel of NV16 in assembly. It first converts the codes to wider ones and the
// scales of the blocks to a separate panel.
func (p *blocks) packNV(panel []float32, m *Matrix, row, rows, k int) {
	const block = BlockNV
	var codes [maxCols * maxDepth]byte
	var scales [maxCols * packed]byte
	var factors [maxCols * packed]float32
	depth := blocksOf(p.depth, block)
	for l := range rows {
		widen(codes[l*maxDepth:], m.from(row+l, k)[:blocksOf(p.depth, 2)])
		copy(scales[l*packed:], m.scales(row+l, k)[:depth])
	}
	p.set.packPanel(&factors[0], &scales[0], packed, 1, &E4M3)
	p.set.packScaled(&panel[0], &codes[0], maxDepth, depth, &factors[0])
}

// rawRow decodes a part of a row without applying the factors.
func (s Set) rawRow(dst []float32, m *Matrix, row, at int) {
	codes := m.from(row, at)
	if m.Scaling == NV16 {
		s.decodeNV(dst, codes, m.scales(row, at), 1)
		return
	}
	s.Decode(dst, codes[:len(dst)], m.Format, 1)
}

// spanFactors sets every step-th element of dst to the factor of a span of a row.
func (m *Matrix) spanFactors(dst []float32, step, row, at, depth, span int) {
	factors := m.Factors
	for i := 0; i*span < depth; i++ {
		k := at + i*span
		switch m.Scaling {
		case Rows128, Tiles128:
			factors = m.factors(row, k)
		case MX32:
			dst[i*step] = E8M0(m.scales(row, k)[0]).Float32()
			continue
		}
		dst[i*step] = factors[0]
	}
}

// plainTile is tile in Go: tiles of 4×4 sums, and single elements at the edges.
func (p *blocks) plainTile(c []float32, stride, rows, cols, at int, first bool) {
	const side = 4
	b, factors := p.b[at*p.deep:], p.bFactors[at*maxSpans:]
	if first {
		for i := range rows {
			clear(c[i*stride:][:cols])
		}
	}
	for s := 0; s*p.span < p.depth; s++ {
		from, to := s*p.span, min((s+1)*p.span, p.depth)
		var part [side][side]float32
		if rows == side && cols == side {
			plain4x4(&part, p.a[from:], b[from*side:], to-from)
		} else {
			for i := range rows {
				for j := range cols {
					for k := from; k < to; k++ {
						part[i][j] += float32(p.a[i*maxDepth+k] * b[k*side+j])
					}
				}
			}
		}
		for i := range rows {
			to := c[i*stride:][:cols]
			for j := range to {
				to[j] += float32(float32(part[i][j]*p.aFactors[i*maxSpans+s]) * factors[s*side+j])
			}
		}
	}
}

// plain4x4 adds to part the products of four rows of A and four columns of B.
func plain4x4(part *[4][4]float32, a, b []float32, depth int) {
	a0, a1, a2, a3 := a[:depth], a[maxDepth:][:depth], a[2*maxDepth:][:depth], a[3*maxDepth:][:depth]
	for k := range a0 {
		row := (*[4]float32)(b[4*k:])
		for i, x := range [4]float32{a0[k], a1[k], a2[k], a3[k]} {
			part[i][0] += float32(x * row[0])
			part[i][1] += float32(x * row[1])
			part[i][2] += float32(x * row[2])
			part[i][3] += float32(x * row[3])
		}
	}
}
