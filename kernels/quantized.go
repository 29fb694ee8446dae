package kernels

import (
	"fmt"

	"github.com/weir-ml/weir/internal/float8"
)

// Scaling says which elements of a quantized matrix share a scale. The last block of a
// row, and the tiles at the edges, are of what is left.
type Scaling uint8

// The scalings.
const (
	PerTensor = Scaling(float8.PerTensor) // one float32
	Rows128   = Scaling(float8.Rows128)   // a float32 for each 128 of a row
	Tiles128  = Scaling(float8.Tiles128)  // a float32 for each 128 by 128
	MX32      = Scaling(float8.MX32)      // a power of two (E8M0) for each 32 of a row
	NV16      = Scaling(float8.NV16)      // an E4M3 for each 16 of a row, and one float32
)

// String returns the name in lower case.
func (s Scaling) String() string {
	if s <= NV16 {
		return [...]string{"tensor", "rows128", "tiles128", "mx32", "nv16"}[s]
	}
	return fmt.Sprintf("scaling(%d)", uint8(s))
}

// Encoding says how a quantized matrix is stored: row after row of codes, a byte each and
// two in a byte in E2M1, where a row begins at a byte, the first code is in the low half
// and a half that is left over is 0; then, from the next multiple of 4 on, its scales, as what decoding multiplies
// with, in the order of its blocks or tiles. In NV16 that of the tensor is the first. So
// scales are released with their codes.
type Encoding struct {
	Format  Format
	Scaling Scaling
}

// String returns format and scaling.
func (e Encoding) String() string { return e.Format.String() + "/" + e.Scaling.String() }

// Valid reports whether format and scaling go together: E2M1 and NV16 with one another,
// and all others with all others.
func (e Encoding) Valid() bool {
	return e.Format <= E2M1 && e.Scaling <= NV16 && (e.Format == E2M1) == (e.Scaling == NV16)
}

// Bytes returns the size of the buffer of a matrix, 0 where there can be none, and the
// largest int where there is not enough memory for it.
func (e Encoding) Bytes(rows, cols int) int {
	if !e.Valid() || rows <= 0 || cols <= 0 {
		return 0
	}
	return float8.Size(float8.Scaling(e.Scaling), formats[e.Format], rows, cols)
}

// Quantized is a matrix in few bits: a buffer of Uint8 with Encoding.Bytes(Rows, Cols)
// elements. The zero Quantized is none.
type Quantized struct {
	Data       Buffer
	Encoding   Encoding
	Rows, Cols int
}

// Cell is an element of a buffer that is a slab of such. The zero Cell is none.
type Cell struct {
	Buffer Buffer
	Index  int
}

// TallyWords are the elements of Int32 of a tally: the bits of the greatest magnitude, of
// the least and of the greatest scale (what elements were multiplied with, in NV16 that of
// the tensor; blocks and tiles that are zero, or not finite, have none; 0 where there was
// none), the number of elements that were infinite or NaN, then two numbers of two
// words, the low one first: elements that were cut to the greatest value of the format,
// and elements that were not zero and became it. A tally of zeros is empty. What comes
// in is merged by maximum, minimum and sum (the number of elements that were not finite
// ends at its greatest value), so that no order can matter.
const TallyWords = 8

// Quantize quantizes X (Rows×Cols, float32) into Rowwise, Rows×Cols, and into Columnwise,
// which is its transpose, Cols×Rows. A zero one is not wanted; where both are they have
// the same encoding. Blocks lie along the rows of each, so in Rows128, MX32 and NV16 the
// two have other numbers; in PerTensor and Tiles128 they are transposes of each other.
//
// What is above the greatest value of the format saturates, infinity too. NaN stays NaN,
// and becomes the greatest value in E2M1. A block of MX32 in which something is not
// finite is NaN as a whole.
type Quantize struct {
	X                   Buffer
	Rows, Cols          int
	Rowwise, Columnwise Quantized
	// Scale is an element of float32 with what PerTensor multiplies with. Without it, it
	// is found from X, 2^Margin below what fits, and at least 2^-126. Only PerTensor may have either.
	Scale  Cell
	Margin int
	// Epsilon is what a smaller greatest magnitude counts as, of a tensor, block or tile;
	// not in MX32 and NV16. It is finite and not negative.
	Epsilon float32
	// AnyScale takes scales as they come; else they are powers of two. It says nothing in
	// MX32, where they always are, and in NV16.
	AnyScale bool
	// Down takes in MX32 the power of two below, not the one above.
	Down bool
	// Stochastic rounds up or down by chance, by draw (Key.Draw) number r·Cols+c for the
	// element of row r and column c of X, in both orientations: up, away from zero, where the
	// draw is not below 2^32 less as many 2^-32 as it is of the way up, whole ones.
	Stochastic bool
	Key        Key
	// Tally is a cell of TallyWords elements of Int32 (cell i begins at element
	// i·TallyWords), which what was met is merged into: that of Rowwise, and that of
	// Columnwise where it is the only one. Without it nothing is recorded.
	Tally Cell
}

// QuantizedMatMul is C = A·Bᵀ, or C += A·Bᵀ where Accumulate is set. A is M×K, B is N×K,
// C is M×N of float32. Their encodings may differ.
//
// Every device gives the same bits. K is cut into spans of 128, of 32 where A or B is in
// MX32. The products of codes, decoded without their scales (in NV16 with that of their
// block), are added up over a span, in ascending order from 0, in float32: each product
// is exact, so a fused addition rounds no differently. The sum is multiplied with the
// scale of A there, then with that of B, then added to the element of C, which begins at
// 0 or at what C had: three roundings. One NaN is as good as another.
//
// Bias, where there is one, is added to each row of C afterwards, with the bits of AddRow.
type QuantizedMatMul struct {
	A, B       Quantized
	C          Buffer
	Bias       Buffer // N elements, or none
	Workspace  Buffer // QuantizedWorkspace elements of float32
	M, N, K    int
	Accumulate bool
}

// Quantization is arithmetic in formats of eight bits and fewer.
type Quantization interface {
	Quantize(op Quantize) error
	// Dequantize decodes q, each code times its scale and rounded once (in NV16 twice: the
	// scale of the block is rounded too), into dst: Rows×Cols, or where transposed is set
	// Cols×Rows. It saturates: a product of finite numbers that is more than a float32
	// becomes the greatest one. Near that, the nearest code may stand for more.
	Dequantize(dst Buffer, q Quantized, transposed bool) error
	// QuantizedWorkspace returns the elements of float32 that the product needs.
	QuantizedWorkspace(m, n, k int) int
	QuantizedMatMul(op QuantizedMatMul) error
}
