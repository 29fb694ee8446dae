package kernels

import (
	"fmt"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
)

// Scaling says which elements of a quantized matrix share a scale. The last block of a row, and
// the tiles at the edges, may be smaller.
type Scaling uint8

// The scalings.
const (
	PerTensor = Scaling(float8.PerTensor) // one float32
	Rows128   = Scaling(float8.Rows128)   // one float32 for every 128 elements of a row
	Tiles128  = Scaling(float8.Tiles128)  // one float32 for every 128×128 tile
	MX32      = Scaling(float8.MX32)      // a power of two (E8M0) for every 32 elements of a row
	NV16      = Scaling(float8.NV16)      // an E4M3 scale for every 16 elements of a row, and one float32
)

// String returns the scaling's name in lower case.
func (s Scaling) String() string {
	if s <= NV16 {
		return [...]string{"tensor", "rows128", "tiles128", "mx32", "nv16"}[s]
	}
	return fmt.Sprintf("scaling(%d)", uint8(s))
}

// Encoding is the storage format of a quantized matrix. The codes come first, row by row, one per
// byte. In E2M1 a byte holds two codes, the first in its low half; each row begins at a byte
// boundary, and an unused half is 0. The scales by which decoding multiplies follow at the next
// multiple of 4, in the order of their blocks or tiles. In NV16 the tensor's scale comes first.
// Because scales and codes share a buffer, they are released together.
type Encoding struct {
	Format  Format
	Scaling Scaling
}

// String returns the format and the scaling.
func (e Encoding) String() string { return e.Format.String() + "/" + e.Scaling.String() }

// Valid reports whether the format and the scaling can be combined: E2M1 and NV16 go only with
// each other; all other combinations are valid.
func (e Encoding) Valid() bool {
	return e.Format <= E2M1 && e.Scaling <= NV16 && (e.Format == E2M1) == (e.Scaling == NV16)
}

// Bytes returns the size of a matrix's buffer. It returns 0 if the encoding or the shape is
// invalid, and the largest int if the size overflows.
func (e Encoding) Bytes(rows, cols int) int {
	if !e.Valid() || rows <= 0 || cols <= 0 {
		return 0
	}
	return e.layout(rows, cols).Size
}

func (e Encoding) layout(rows, cols int) float8.Layout {
	return float8.LayoutOf(float8.Scaling(e.Scaling), formats[e.Format], rows, cols)
}

// Offsets returns where a valid matrix's float32 scales begin in its buffer, and where its
// one-byte scales begin, which only MX32 and NV16 have.
func (e Encoding) Offsets(rows, cols int) (float32s, bytes int) {
	l := e.layout(rows, cols)
	return l.Factors, l.Scales
}

// Quantized is a quantized matrix, stored in a Uint8 buffer with Encoding.Bytes(Rows, Cols)
// elements. The zero Quantized refers to no matrix.
type Quantized struct {
	Data       Buffer
	Encoding   Encoding
	Rows, Cols int
}

// Cell is a fixed-size part of a buffer that is divided into such cells (a slab). The zero Cell
// refers to no cell.
type Cell struct {
	Buffer Buffer
	Index  int
}

// TallyWords is the number of Int32 elements of a tally: the bits of the greatest magnitude, of
// the least scale and of the greatest scale; the number of elements that were infinite or NaN;
// then two counters of two words each, the low word first: elements that were saturated to the
// greatest value of the format, and nonzero elements that became zero. Here a scale is the factor
// by which elements were multiplied, or in NV16 the tensor's factor. A block or tile of Rows128,
// Tiles128 or MX32 has no scale if it is not finite, or if it is all zero and no Epsilon applies;
// 0 means that there was no scale at all. A tally of zeros is empty. Tallies are merged by
// maximum, minimum and sum (the number of non-finite elements saturates), so the order of merges
// does not matter.
const TallyWords = 8

// Quantize quantizes X (Rows×Cols, float32) into Rowwise, Rows×Cols, and into its transpose
// Columnwise, Cols×Rows. One of the two may be zero, and is then omitted; otherwise both must
// have the same encoding. Blocks run along the rows of each, so in Rows128, MX32 and NV16 the two
// decode to different numbers; in PerTensor and Tiles128 they are transposes of each other.
//
// Values above the format's greatest value saturate, and so does infinity. NaN stays NaN, except
// that it becomes the greatest value in E2M1. An MX32 block that contains a non-finite element
// decodes to NaN.
type Quantize struct {
	X                   Buffer
	Rows, Cols          int
	Rowwise, Columnwise Quantized
	// Scale is a float32 cell that holds the scale for PerTensor. If it is the zero Cell, the
	// scale is computed from X: the greatest scale that fits, divided by 2^Margin, but at least
	// 2^-126. Margin is 0 to 64. With other scalings, both must be zero.
	Scale  Cell
	Margin int
	// Epsilon is the lower bound of the greatest magnitude of a tensor, block or tile. It must be
	// finite and not negative. MX32 and NV16 do not use it.
	Epsilon float32
	// AnyScale allows scales that are not powers of two. It has no effect in NV16, or in MX32,
	// whose scales are always powers of two.
	AnyScale bool
	// Down rounds the MX32 scales down to a power of two instead of up.
	Down bool
	// Stochastic rounds stochastically. The element in row r and column c of X uses draw
	// (Key.Draw) number r·Cols+c, in both orientations. Let f be the distance of the element from
	// the code below it in magnitude, as a fraction of the distance between this code and the next
	// one, in units of 2^-32, truncated. The element is rounded away from zero if its draw is at
	// least 2^32 - f.
	Stochastic bool
	Key        Key
	// Tally is a cell of TallyWords elements of Int32 (cell i begins at element i·TallyWords)
	// into which statistics are merged: those of Rowwise, or those of Columnwise if Rowwise is
	// zero. If Tally is the zero Cell, nothing is recorded.
	Tally Cell
}

// QuantizedMatMul is C = A·Bᵀ, or C += A·Bᵀ if Accumulate is set. A is M×K, B is N×K, and C is
// M×N in float32. The encodings of A and B may differ.
//
// Every device gives the same bits, if all NaNs count as equal. K is divided into spans of 128
// elements, or of 32 if A or B is in MX32. The products in a span are summed in float32, in
// ascending order from 0. Their factors are codes decoded without their scales (but in NV16 with
// the block's scale), so each product is exact, and fused additions round no differently. The sum
// is multiplied by A's scale for that span, then by B's, and is then added to the element of C,
// which starts at 0 or at its previous value: three roundings.
//
// Bias, if set, is added to each row of C afterwards, with the same bits as AddRow.
type QuantizedMatMul struct {
	A, B       Quantized
	C          Buffer
	Bias       Buffer // N elements, or zero
	Workspace  Buffer // float32; at least QuantizedWorkspace elements
	M, N, K    int
	Accumulate bool
}

// Quantization provides arithmetic in formats of at most eight bits.
type Quantization interface {
	Quantize(op Quantize) error
	// Dequantize decodes q into dst: Rows×Cols, or Cols×Rows if transposed is set. Each element
	// is its code times its scale, rounded once (in NV16 twice, because the block's scale is
	// rounded too). Dequantize saturates: a product of finite numbers that overflows becomes the
	// greatest float32. This can happen because the code nearest to a very large number may
	// represent an even larger one.
	Dequantize(dst Buffer, q Quantized, transposed bool) error
	// QuantizedWorkspace returns the number of float32 elements that QuantizedMatMul needs.
	QuantizedWorkspace(m, n, k int) int
	QuantizedMatMul(op QuantizedMatMul) error
}
