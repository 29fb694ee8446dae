package float8

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
