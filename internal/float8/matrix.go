package float8

import (
	"math"
	"math/bits"
	"unsafe"
)

// Scaling says which elements of a matrix share a scale.
type Scaling uint8

// The scalings. Blocks at the end of a row and tiles at the edges may be smaller.
const (
	PerTensor Scaling = iota // all elements
	Rows128                  // 128 elements of a row
	Tiles128                 // 128 by 128 elements
	MX32                     // 32 elements of a row: a power of two
	NV16                     // 16 elements of a row: an E4M3, and one float32 for all
)

// Matrix is a quantized matrix, stored row by row.
type Matrix struct {
	Format     *Format
	Scaling    Scaling
	Rows, Cols int
	// Codes has Stride bytes for each row. In E2M1 a byte holds two codes, the first in its low
	// half.
	Codes  []byte
	Stride int
	// Factors holds the factors by which decoding multiplies: a single one, or one for each
	// block or tile, row by row. It is empty in MX32.
	Factors []float32
	// Scales holds the scale of each block in MX32 (E8M0) and NV16 (E4M3).
	Scales []byte
	// Across is the number of blocks or tiles along a row.
	Across int
}

// shape returns a matrix without its memory, and the bytes that the matrix needs.
func shape(s Scaling, f *Format, rows, cols int) (m Matrix, bytes int) {
	m = Matrix{Format: f, Scaling: s, Rows: rows, Cols: cols, Stride: cols, Across: blocksOf(cols, s.block())}
	if f.Mantissa == E2M1.Mantissa {
		m.Stride = blocksOf(cols, 2)
	}
	factors, scales := 1, 0
	switch s {
	case Rows128:
		factors = boundedProduct(rows, m.Across)
	case Tiles128:
		factors = boundedProduct(blocksOf(rows, BlockTile), m.Across)
	case MX32:
		factors, scales = 0, boundedProduct(rows, m.Across)
	case NV16:
		scales = boundedProduct(rows, m.Across)
	}
	return m, boundedSum(boundedSum(boundedProduct(blocksOf(boundedProduct(rows, m.Stride), 4), 4), boundedProduct(factors, 4)), scales)
}

// block returns the number of elements of a row that share a scale.
func (s Scaling) block() int { return [...]int{math.MaxInt, BlockRow, BlockTile, BlockMX, BlockNV}[s] }

// blocksOf returns the number of blocks that n elements occupy.
func blocksOf(n, block int) int { return n/block + min(n%block, 1) }

// boundedProduct and boundedSum multiply and add arguments that are not negative. On overflow
// they return the largest int.
func boundedProduct(a, b int) int {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}

func boundedSum(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// Size returns the size of a matrix in bytes: its codes, then, from the next multiple of 4, its
// factors, then its scales. It returns the largest int if the size overflows one.
func Size(s Scaling, f *Format, rows, cols int) int {
	_, bytes := shape(s, f, rows, cols)
	return bytes
}

// Open returns the matrix stored in data, whose length is Size and which begins at a multiple
// of 4.
func Open(data []byte, s Scaling, f *Format, rows, cols int) Matrix {
	m, bytes := shape(s, f, rows, cols)
	data = data[:bytes:bytes]
	codes := rows * m.Stride
	m.Codes, data = data[:codes], data[(codes+3)/4*4:]
	blocks := 0
	switch s {
	case MX32:
		m.Scales = data
		return m
	case NV16:
		blocks = rows * m.Across
	}
	factors := data[:len(data)-blocks]
	m.Factors = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(factors))), len(factors)/4)
	m.Scales = data[len(factors):]
	return m
}

// flat reports that no block is short, so that the rows can be treated as one.
func (m *Matrix) flat() bool {
	return m.Scaling == PerTensor || m.Scaling != Tiles128 && m.Cols%m.Scaling.block() == 0
}

// from returns the codes of a row and of the rows after it, starting at element at, which is
// even in E2M1.
func (m *Matrix) from(row, at int) []byte {
	if m.Format.Mantissa == E2M1.Mantissa {
		at /= 2
	}
	return m.Codes[row*m.Stride+at:]
}

// factors returns the factors of a row and of the rows after it, starting at an element that
// begins a block.
func (m *Matrix) factors(row, at int) []float32 {
	switch m.Scaling {
	case Rows128:
		return m.Factors[row*m.Across+at/BlockRow:]
	case Tiles128:
		return m.Factors[row/BlockTile*m.Across+at/BlockTile:]
	}
	return m.Factors
}

// scales returns the block scales of a row and of the rows after it, starting at an element
// that begins a block.
func (m *Matrix) scales(row, at int) []byte {
	return m.Scales[row*m.Across+at/m.Scaling.block():]
}
