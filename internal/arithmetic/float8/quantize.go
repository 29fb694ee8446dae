package float8

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Rule specifies how a matrix is quantized. Values that are too large saturate.
type Rule struct {
	// Scale is the factor of the elements in PerTensor, and the tensor's scale (TensorNV) in
	// NV16. The other scalings compute their scales.
	Scale float32
	// Epsilon is the lower bound of an amax in Rows128 and Tiles128, whose scales are powers of
	// two unless AnyScale is set.
	Epsilon  float32
	AnyScale bool
	// Down rounds scales down to a power of two in MX32.
	Down bool
	// Random, if not nil, makes rounding stochastic: element i of the source takes number i%4 of
	// draw i/4. If it is nil, rounding is to nearest.
	Random *vector.Philox
}

// strip is the number of elements of a row that are quantized at a time if the row is quantized
// in pieces. It is a multiple of every block.
const strip = 128

// QuantizeRows quantizes the rows of x in the range [from, to). In Tiles128 the range must consist of whole
// tiles. In PerTensor and NV16, the call with from = 0 also sets the factor of the whole matrix.
func (s Set) QuantizeRows(m *Matrix, x []float32, rule *Rule, from, to int) (t Tally) {
	if from == to {
		return t
	}
	var random [piece]uint32
	if m.Scaling == Tiles128 {
		for r := from; r < to; r += BlockTile {
			for c := 0; c < m.Cols; c += BlockTile {
				rows, cols := min(BlockTile, to-r), min(BlockTile, m.Cols-c)
				scale := s.tile(m, x[r*m.Cols+c:], m.Cols, rows, cols, rule, r, c, &t)
				for i := r; i < r+rows; i++ {
					t.Merge(s.row(m, x, rule, &random, scale, i, c, c+cols))
				}
			}
		}
		return t
	}
	scale := m.matrixScale(rule, from, &t)
	if m.flat() {
		t.Merge(s.row(m, x, rule, &random, scale, from, 0, (to-from)*m.Cols))
		return t
	}
	for r := from; r < to; r++ {
		t.Merge(s.row(m, x, rule, &random, scale, r, 0, m.Cols))
	}
	return t
}

// row quantizes a part of a row of the source x; if all blocks are full, the part may extend over
// the rows that follow. random is scratch for random numbers.
func (s Set) row(m *Matrix, x []float32, rule *Rule, random *[piece]uint32, scale float32, r, from, to int) (t Tally) {
	src := x[r*m.Cols:][:to]
	if rule.Random == nil {
		return s.segment(m, src[from:], nil, rule, scale, r, from)
	}
	for c := from; c < to; c += piece {
		n := min(piece, to-c)
		s.fill(random[:n], rule.Random, r*m.Cols+c)
		t.Merge(s.segment(m, src[c:c+n], random[:n], rule, scale, r, c))
	}
	return t
}

// matrixScale returns the scale of the whole matrix, or 1 if it has none. If first is 0, it also
// stores the reciprocal of the scale, and adds the scale to the tally.
func (m *Matrix) matrixScale(rule *Rule, first int, t *Tally) float32 {
	if m.Scaling != PerTensor && m.Scaling != NV16 {
		return 1
	}
	if first == 0 {
		m.Factors[0] = 1 / rule.Scale
		t.scale(rule.Scale, 1)
	}
	return rule.Scale
}

// tile computes, stores and returns the scale of a tile of rows×cols elements of x. The tile
// begins at the given row and column of m.
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

// segment quantizes src as elements of a row of m, starting at a multiple of strip. scale is
// the scale of the tensor or of the tile.
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
	return s.Encode(dst[:len(src)], src, random, m.Format, scale)
}
