package float8

// DequantizeRow decodes a row of the matrix from a multiple of strip on.
func (s Set) DequantizeRow(dst []float32, m *Matrix, row, at int) {
	codes := m.from(row, at)
	switch m.Scaling {
	case Rows128, Tiles128:
		s.decodeRows(dst, codes[:len(dst)], m.factors(row, at), m.Format)
	case MX32:
		s.decodeMX(dst, codes[:len(dst)], m.scales(row, at), m.Format)
	case NV16:
		s.decodeNV(dst, codes, m.scales(row, at), m.Factors[0])
	default:
		s.Decode(dst, codes[:len(dst)], m.Format, m.Factors[0])
	}
}

// Dequantize decodes the rows of the matrix from one to another into dst, which is the
// whole of it.
func (s Set) Dequantize(dst []float32, m *Matrix, from, to int) {
	if from < to && m.flat() {
		s.DequantizeRow(dst[from*m.Cols:to*m.Cols], m, from, 0)
		return
	}
	for r := from; r < to; r++ {
		s.DequantizeRow(dst[r*m.Cols:][:m.Cols], m, r, 0)
	}
}

// DequantizeTransposed decodes the columns of the matrix from one to another, multiples of
// strip, as rows of dst, which is the whole of its transpose.
func (s Set) DequantizeTransposed(dst []float32, m *Matrix, from, to int) {
	var piece [lanes * strip]float32
	for c := from; c < to; c += strip {
		n := min(strip, to-c)
		for r := 0; r < m.Rows; r += lanes {
			k := min(lanes, m.Rows-r)
			for l := range k {
				s.DequantizeRow(piece[l*strip:][:n], m, r+l, c)
			}
			s.transpose(dst[c*m.Rows+r:], m.Rows, piece[:], strip, k, n)
		}
	}
}
