package float8

import "unsafe"

// DequantizeRow decodes len(dst) elements of a row from element at on, which is a multiple of
// strip. If the matrix is flat, the elements may extend over the rows that follow.
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

// Dequantize decodes the matrix's rows in the range [from, to) into dst, which has room for the
// whole matrix.
func (s Set) Dequantize(dst []float32, m *Matrix, from, to int) {
	step := 1
	if m.flat() {
		step = max(1, to-from)
	}
	far := s != Portable && len(dst) > beyondL3
	for r := from; r < to; r += step {
		row := dst[r*m.Cols:][:step*m.Cols]
		if far {
			s.streamRow(row, m, r, 0)
		} else {
			s.DequantizeRow(row, m, r, 0)
		}
	}
	if far {
		fence()
	}
}

// streamRow is DequantizeRow in pieces that stay in the first-level cache. It streams a piece
// past the other caches if the piece consists of whole lines of dst.
func (s Set) streamRow(dst []float32, m *Matrix, row, at int) {
	var room [piece / 2]float32
	for len(dst) > 0 {
		n := min(len(room), len(dst))
		if to := bytesOf(dst[:n]); n%(line/4) == 0 && streams(to, 0) {
			s.DequantizeRow(room[:n], m, row, at)
			stream(to, 0, bytesOf(room[:n]), 0, 1, 4*n)
		} else {
			s.DequantizeRow(dst[:n], m, row, at)
		}
		dst, at = dst[n:], at+n
	}
}

// bytesOf returns x as bytes, without a copy.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// DequantizeTransposed decodes the matrix's columns in the range [from, to) as rows of dst, which
// has room for the whole transpose. from is a multiple of strip.
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
