package float8

import "math"

// Rule says how a matrix is quantized. What is too large saturates.
type Rule struct {
	// Scale is what the elements are multiplied with in PerTensor, and the scale of the
	// tensor in NV16 (TensorNV). The others find theirs.
	Scale float32
	// Epsilon is what a smaller amax counts as in Rows128 and Tiles128. AnyScale takes
	// their scales as they come; else they are powers of two.
	Epsilon  float32
	AnyScale bool
	// Down takes the power of two below in MX32.
	Down bool
	// Random rounds stochastically: element i of the source takes number i%4 of draw i/4.
	// nil rounds to nearest.
	Random Random
}

// Random draws four numbers at a time.
type Random interface {
	Draw(block uint64) (a, b, c, d uint32)
}

// strip is how much of a row is quantized at a time where that is not the whole of it: a
// multiple of every block.
const strip = 128

// QuantizeRows quantizes the rows of x from one to another, whole tiles of them in
// Tiles128, and for the first row what the matrix has once.
func (s Set) QuantizeRows(m *Matrix, x []float32, rule *Rule, from, to int) (t Tally) {
	if from == to {
		return t
	}
	if m.Scaling == Tiles128 {
		for r := from; r < to; r += BlockTile {
			for c := 0; c < m.Cols; c += BlockTile {
				rows, cols := min(BlockTile, to-r), min(BlockTile, m.Cols-c)
				scale := s.tile(m, x[r*m.Cols+c:], m.Cols, rows, cols, rule, r, c, &t)
				for i := r; i < r+rows; i++ {
					t.Merge(s.row(m, x, rule, scale, i, c, c+cols))
				}
			}
		}
		return t
	}
	scale := m.once(rule, from, &t)
	if rule.Random == nil && m.flat() {
		t.Merge(s.segment(m, x[from*m.Cols:to*m.Cols], nil, rule, scale, from, 0))
		return t
	}
	for r := from; r < to; r++ {
		t.Merge(s.row(m, x, rule, scale, r, 0, m.Cols))
	}
	return t
}

// row quantizes a part of a row of the source x.
func (s Set) row(m *Matrix, x []float32, rule *Rule, scale float32, r, from, to int) (t Tally) {
	src := x[r*m.Cols:][:to]
	if rule.Random == nil {
		return s.segment(m, src[from:], nil, rule, scale, r, from)
	}
	var random [strip]uint32
	for c := from; c < to; c += strip {
		n := min(strip, to-c)
		fill(random[:n], rule.Random, r*m.Cols+c)
		t.Merge(s.segment(m, src[c:c+n], random[:n], rule, scale, r, c))
	}
	return t
}

// lanes is how many columns are transposed at a time.
const lanes = 16

// columnScales are the scales of a strip of some columns: in Rows128 what decoding
// multiplies with, in MX32 codes.
type columnScales struct {
	inverses [lanes]float32
	codes    [lanes][strip / BlockMX]byte
}

// QuantizeColumns quantizes the transpose of x: its columns from one to another, whole
// tiles of them in Tiles128, become rows of m; and for the first column what the matrix
// has once.
func (s Set) QuantizeColumns(m *Matrix, x []float32, rule *Rule, from, to int) (t Tally) {
	if from == to {
		return t
	}
	rows, cols := m.Cols, m.Rows // of x
	wide := lanes
	if m.Scaling == Tiles128 {
		wide = BlockTile
	}
	scale := m.once(rule, from, &t)
	for r := 0; r < rows; r += strip { // of which all columns stay in a cache
		n := min(strip, rows-r)
		for c := from; c < to; c += wide {
			end := min(c+wide, to)
			if m.Scaling == Tiles128 {
				scale = s.tile(m, x[r*cols+c:], cols, n, end-c, rule, c, r, &t)
			}
			for j := c; j < end; j += lanes {
				k := min(lanes, end-j)
				met, ok := s.quickStrip(m, x[r*cols+j:], cols, n, k, rule, scale, j, r)
				if !ok {
					met = s.strip(m, x, n, k, rule, scale, j, r)
				}
				t.Merge(met)
			}
		}
	}
	return t
}

// strip quantizes k columns of x from one on, n rows of them, as rows of m.
func (s Set) strip(m *Matrix, x []float32, n, k int, rule *Rule, scale float32, col, row int) (t Tally) {
	var piece [lanes * strip]float32
	cols := m.Rows
	s.transpose(piece[:], strip, x[row*cols+col:], cols, n, k)
	if rule.Random != nil {
		return s.randomStrip(m, &piece, n, k, rule, scale, col, row)
	}
	if n == strip {
		return s.wholeStrip(m, piece[:k*strip], k, rule, scale, col, row)
	}
	for l := range k {
		t.Merge(s.segment(m, piece[l*strip:][:n], nil, rule, scale, col+l, row))
	}
	return t
}

// wholeStrip is strip for columns that have been transposed and are whole: they are
// quantized as if they were one row, in a matrix of their own.
func (s Set) wholeStrip(m *Matrix, piece []float32, k int, rule *Rule, scale float32, col, row int) Tally {
	var codes [lanes * strip]byte
	var factors [lanes]float32
	var scales [lanes * strip / BlockNV]byte
	own := Matrix{
		Format: m.Format, Scaling: m.Scaling, Rows: k, Cols: strip, Codes: codes[:], Stride: strip,
		Factors: factors[:], Scales: scales[:], Across: max(1, strip/m.Scaling.block()),
	}
	if m.Scaling == NV16 {
		own.Stride = strip / 2
	}
	t := s.segment(&own, piece, nil, rule, scale, 0, 0)
	for l := range k {
		copy(m.from(col+l, row)[:own.Stride], codes[l*own.Stride:])
		switch m.Scaling {
		case Rows128:
			m.factors(col+l, row)[0] = factors[l]
		case MX32, NV16:
			copy(m.scales(col+l, row)[:own.Across], scales[l*own.Across:])
		}
	}
	return t
}

// randomStrip is strip with random numbers, for columns that have been transposed.
func (s Set) randomStrip(m *Matrix, piece *[lanes * strip]float32, n, k int, rule *Rule, scale float32, col, row int) (t Tally) {
	var random [lanes][strip]uint32
	fillColumns(&random, n, k, rule.Random, row*m.Rows+col, m.Rows)
	for l := range k {
		t.Merge(s.segment(m, piece[l*strip:][:n], random[l][:n], rule, scale, col+l, row))
	}
	return t
}

// quickStrip is strip in assembly. What is less than whole groups is copied to where it
// has zeros beside it. It reports false where it cannot be done.
func (s Set) quickStrip(m *Matrix, x []float32, stride, n, k int, rule *Rule, scale float32, col, row int) (t Tally, ok bool) {
	if s != AVX512 || rule.Random != nil || m.Scaling == NV16 {
		return t, false
	}
	const group = BlockMX
	var scales columnScales
	if k == lanes && n%group == 0 {
		t, ok = s.columns(m.from(col, row), m.Stride, &scales, x, stride, n, k, m, rule, scale)
	} else {
		var from [strip * lanes]float32
		var to [lanes * strip]byte
		for i := range n {
			copy(from[i*lanes:], x[i*stride:][:k])
		}
		t, ok = s.columns(to[:], strip, &scales, from[:], lanes, blocksOf(n, group)*group, k, m, rule, scale)
		for l := range k {
			copy(m.from(col+l, row)[:n], to[l*strip:])
		}
	}
	for l := range k {
		switch m.Scaling {
		case Rows128:
			m.factors(col+l, row)[0] = scales.inverses[l]
		case MX32:
			copy(m.scales(col+l, row), scales.codes[l][:blocksOf(n, BlockMX)])
		}
	}
	return t, ok
}

// once returns the scale of the matrix where it has one, and for the first row enters it.
func (m *Matrix) once(rule *Rule, first int, t *Tally) float32 {
	if m.Scaling != PerTensor && m.Scaling != NV16 {
		return 1
	}
	if first == 0 {
		m.Factors[0] = 1 / rule.Scale
		t.scale(rule.Scale, 1)
	}
	return rule.Scale
}

// tile returns the scale of a tile and enters it: of rows×cols elements of x, for the
// row and the column of m where the tile begins.
func (s Set) tile(m *Matrix, x []float32, stride, rows, cols int, rule *Rule, row, col int, t *Tally) float32 {
	var bits uint32
	for i := range rows {
		bits = max(bits, s.Amax(x[i*stride:][:cols]))
	}
	amax := math.Float32frombits(bits)
	scale := ScaleOf(amax, m.Format.Greatest(), rule.Epsilon, !rule.AnyScale)
	m.factors(row, col)[0] = 1 / scale
	t.scale(scale, max(amax, rule.Epsilon))
	return scale
}

// segment quantizes src as elements of a row of m from a multiple of strip on. Scale is
// that of the tensor or the tile.
func (s Set) segment(m *Matrix, src []float32, random []uint32, rule *Rule, scale float32, row, at int) Tally {
	dst := m.from(row, at)
	switch m.Scaling {
	case Rows128:
		return s.encodeRows(dst, m.factors(row, at), src, random, m.Format, rule.Epsilon, !rule.AnyScale)
	case MX32:
		return s.encodeMX(dst, m.scales(row, at), src, random, m.Format, !rule.Down)
	case NV16:
		return s.encodeNV(dst, m.scales(row, at), src, scale, random)
	}
	return s.encode(dst[:len(src)], src, random, m.Format, scale)
}

// fill sets dst to the numbers of elements from one on.
func fill(dst []uint32, random Random, from int) {
	for i := 0; i < len(dst); {
		var u [4]uint32
		u[0], u[1], u[2], u[3] = random.Draw(uint64(from+i) / 4)
		i += copy(dst[i:], u[(from+i)%4:])
	}
}

// fillColumns sets the first k of n rows to the numbers of a piece of a matrix with stride
// columns that begins at an element.
func fillColumns(dst *[lanes][strip]uint32, n, k int, random Random, from, stride int) {
	var row [lanes]uint32
	for i := range n {
		fill(row[:k], random, from+i*stride)
		for l, u := range row[:k] {
			dst[l][i] = u
		}
	}
}

// encode is Encode, stochastic where there are random numbers. It saturates.
func (s Set) encode(dst []byte, src []float32, random []uint32, f *Format, scale float32) Tally {
	if random == nil {
		return s.Encode(dst, src, f, scale, Saturate)
	}
	return encodeRandom(dst, src, random, f, scale)
}

// encodeRandom encodes with a random number for each element.
func encodeRandom(dst []byte, src []float32, random []uint32, f *Format, scale float32) (t Tally) {
	for i, x := range src {
		dst[i] = f.Stochastic(x*scale, random[i], Saturate)
		t.note(x, x*scale, dst[i], f)
	}
	return t
}
